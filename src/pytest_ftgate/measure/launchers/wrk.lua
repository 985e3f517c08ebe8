-- What wrk says at its end as one line of JSON: its own text has neither the 95th percentile nor whole numbers.

local function known(value)
   if value ~= value then return 0 end -- of no request at all there is no mean
   return value
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
