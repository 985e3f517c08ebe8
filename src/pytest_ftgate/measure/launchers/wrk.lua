-- Makes wrk's requests, and says at its end what it measured as one line of JSON: its own text has neither the 95th
-- percentile nor whole numbers.

local function known(value)
   if value ~= value then return 0 end -- of no request at all there is no mean
   return value
end

-- Its arguments are the method, a file with the body (or nothing), and the paths of a round if there are several.
function init(args)
   if args[1] then wrk.method = args[1] end
   if args[2] and args[2] ~= "" then
      local file = assert(io.open(args[2], "rb"))
      wrk.body = file:read("*a")
      file:close()
   end
   if not args[3] then return end -- without a function of its own wrk sends one request again and again
   local round, turn = {}, 0
   for index = 3, #args do round[index - 2] = wrk.format(nil, args[index]) end
   function request()
      turn = turn % #round + 1
      return round[turn]
   end
end

function done(summary, latency)
   local parts = {}
   for _, kind in ipairs({ "connect", "read", "write", "status", "timeout" }) do
      parts[#parts + 1] = string.format('"%s": %d', kind, summary.errors[kind])
   end
   io.write(string.format(
      '\n{"requests": %d, "duration_us": %d, "errors": {%s}, "mean_us": %.3f, "p50_us": %d, "p95_us": %d, '
         .. '"p99_us": %d, "max_us": %d}\n',
      summary.requests, summary.duration, table.concat(parts, ", "), known(latency.mean),
      latency:percentile(50), latency:percentile(95), latency:percentile(99), latency.max))
end
