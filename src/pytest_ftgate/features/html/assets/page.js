// Sorts the tables, and draws the plots from the page's block of data. Colours and shapes are page.css's.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]];
  const STATES = [
    ["running", "running"], ["runnable", "runnable"], ["gil", "GIL"], ["lock", "lock"], ["queue", "queue"],
    ["process", "another process"], ["unattributed", "unattributed"], ["asleep", "asleep"],
  ];
  const MANY = 24;
  const BAD_FIRST = cells => [...cells].sort((a, b) => b.fails - a.fails);

  // ---- tables

  const keyOf = cell => cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);

  function compare(a, b) {
    if (a === "" || b === "") return (a === "") - (b === "");
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sort(header) {
    const table = header.closest("table");
    const body = table.tBodies[0];
    const column = header.cellIndex;
    const down = header.getAttribute("aria-sort") === "ascending";
    for (const each of table.tHead.rows[0].cells) each.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].map(row => [keyOf(row.cells[column]), row]);
    // What has no value stays last in both directions.
    rows.sort(([a], [b]) => (down && a !== "" && b !== "" ? -compare(a, b) : compare(a, b)));
    body.append(...rows.map(([, row]) => row));
  }

  document.addEventListener("click", event => {
    const button = event.target.closest(".sortable thead button");
    if (button) sort(button.parentElement);
  });

  // A table that is wider than the screen says that it scrolls.
  const scrolls = new ResizeObserver(found => {
    for (const { target } of found) target.classList.toggle("wide", target.scrollWidth > target.clientWidth);
  });
  for (const each of document.querySelectorAll(".scroll")) scrolls.observe(each);

  // ---- pieces of plots

  function time(ns) {
    const [name, size] = TIMES.filter(([, each]) => Math.abs(ns) >= each).pop() ?? TIMES[0];
    return `${(ns / size).toPrecision(3)} ${name}`;
  }

  function element(name, text, properties) {
    const made = Object.assign(document.createElement(name), properties);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // `label` and `numbers` are the plot for those who do not see it: what it shows, and a sentence for each series.
  function drawn(options, label, numbers) {
    const svg = Plot.plot({ className: "plot", ariaLabel: [label, ...numbers].join(". "), ...options });
    svg.querySelector("style")?.remove(); // page.css has these rules: the policy lets in no other style
    svg.setAttribute("role", "img");
    svg.setAttribute("tabindex", "0");
    return svg;
  }

  const short = value => String(Number(value.toPrecision(3)));

  const swatch = (shape, attributes) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", shape);
    for (const [name, value] of Object.entries(attributes)) path.setAttribute(name, value);
    for (const [name, value] of [["width", 14], ["height", 12], ["viewBox", "-7 -6 14 12"], ["aria-hidden", true]]) svg.setAttribute(name, value);
    svg.append(path);
    return svg;
  };
  const BOX = "M-5,-5h10v10h-10z";
  const DOT = d3.symbol(d3.symbolCircle, 60)();
  const interval = () => swatch("M-7,0h14", { stroke: "var(--now)", "stroke-width": 7, "stroke-opacity": 0.3 });
  const reference = () => swatch("M0,-6v12", { stroke: "var(--was)", "stroke-width": 1.4 });

  function legend(items) {
    const list = element("ul", undefined, { className: "legend" });
    for (const [sign, text] of items) {
      const item = element("li");
      item.append(sign, text);
      list.append(item);
    }
    return list;
  }

  function figure(title, text, ...parts) {
    const made = element("figure");
    const caption = element("figcaption", title);
    if (text) caption.append(element("small", text));
    made.append(caption, ...parts);
    return made;
  }

  const width = () => Math.max(280, Math.min(1180, document.querySelector("main").clientWidth - 36));
  const left = (shown, all) => (shown < all ? ` ${all - shown} more cells have their figures in the table alone.` : "");
  const heads = labels => Plot.text(labels, { fy: d => d.label, text: d => d.head ?? d.label, frameAnchor: "top-left", fontWeight: d => 600, dy: 1 });
  const head = cell => ({ label: cell.label, head: cell.fails ? `${cell.label}  ✕ ${cell.decision}` : cell.label });
  const facets = (cells, height) => ({
    width: width(), height: cells.length * height + 40, marginLeft: 8, marginRight: 16, marginTop: 0, marginBottom: 36,
    fy: { domain: cells.map(cell => cell.label), axis: null, padding: 0.1 },
  });
  // A scale for these values, logarithmic where they lie far apart.
  const far = values => Math.min(...values) > 0 && Math.max(...values) > 3 * Math.min(...values);
  function scale(logarithmic, values, tickFormat) {
    const [least, most] = d3.extent(values);
    const edge = 0.03 * (most - least || Math.abs(most) || 1);
    const domain = logarithmic ? [least / 1.03, most * 1.03] : [least - edge, most + edge];
    return { type: logarithmic ? "log" : "linear", domain, label: null, ticks: Math.max(3, Math.round(width() / 130)), tickFormat };
  }
  const INTERVAL = { fy: "label", y: 0.5, stroke: "var(--now)", strokeWidth: 9, strokeOpacity: 0.3 };
  const MIDDLE = { fy: "label", y1: 0.24, y2: 0.76, stroke: "var(--now)", strokeWidth: 2.5 };

  // ---- times: the wall time of each cell with its interval, and that of its reference

  function walls(test) {
    const having = test.cells.filter(cell => cell.wall);
    const cells = BAD_FIRST(having).slice(0, MANY).map(cell => ({ ...cell, ...cell.wall }));
    const known = cells.filter(cell => cell.interval).map(({ label, interval }) => ({ label, ...interval }));
    const compared = cells.filter(cell => cell.was !== null);
    const values = [...cells.map(cell => cell.value), ...compared.map(cell => cell.was), ...known.flatMap(({ low, high }) => [low, high])];
    const logarithmic = far(values);
    const said = cell => `${time(cell.value)}${cell.was === null ? "" : `, was ${time(cell.was)}`}`;
    const plot = drawn({
      ...facets(cells, 46),
      x: scale(logarithmic, values, time),
      y: { domain: [1, 0], axis: null, insetTop: 20 },
      marks: [
        heads(cells.map(cell => ({ ...head(cell), head: `${head(cell).head}  ${said(cell)}` }))),
        Plot.ruleX(compared, { ...MIDDLE, x: "was", stroke: "var(--was)", strokeWidth: 1.4 }),
        Plot.ruleY(known, { ...INTERVAL, x1: "low", x2: "high", title: d => `${d.label}: ${time(d.low)} to ${time(d.high)}` }),
        Plot.ruleX(cells, { ...MIDDLE, x: "value" }),
      ],
    }, "Time of each cell", cells.map(cell => [`${cell.label}: ${said(cell)}`, ...(cell.interval ? [`interval ${time(cell.interval.low)} to ${time(cell.interval.high)}`] : [])].join(", ")));
    return figure("Time of each cell", `Wall time.${logarithmic ? " Logarithmic scale." : ""}${left(cells.length, having.length)}`,
      legend([...(known.length ? [[interval(), "interval, with its middle"]] : []), ...(compared.length ? [[reference(), "time of its reference"]] : [])]), plot);
  }

  // ---- changes: the ratio of each pair of launches and its interval, on the limits

  function changes(test, metric) {
    const having = test.cells.filter(cell => cell.changes[metric]);
    const cells = BAD_FIRST(having).slice(0, MANY).map(cell => ({ ...cell, ...cell.changes[metric] }));
    const { unit } = having[0].changes[metric];
    const none = unit === "points" ? 0 : 1;
    const said = value => `${value > none ? "+" : ""}${short(100 * (value - none))} ${unit === "points" ? "points" : "%"}`;
    const pairs = cells.flatMap(({ label, pairs: own }) => own.map((value, at) => ({ label, value, y: 0.22 + 0.56 * (own.length > 1 ? at / (own.length - 1) : 0.5), title: `${label}, pair ${at + 1}: ${said(value)}` })));
    const limits = cells.filter(d => d.allowed !== null && d.effect !== null).map(({ label, allowed, effect }) => ({ label, first: Math.min(allowed, effect), second: Math.max(allowed, effect) }));
    const known = cells.filter(d => d.change.level > 0).map(({ label, change }) => ({ label, ...change }));
    // An interval of few pairs may be far wider than they are: it is cut at the edge, so that the pairs stay apart.
    const values = [none, ...pairs.map(d => d.value), ...cells.map(d => d.change.value), ...limits.flatMap(d => [d.first, d.second])];
    const logarithmic = unit !== "points" && far(values);
    const [least, most] = d3.extent(values);
    const room = logarithmic ? [least / 1.3, most * 1.3] : [least - 0.4 * (most - least), most + 0.4 * (most - least)];
    const inside = value => Math.min(room[1], Math.max(room[0], value));
    const used = d3.extent([...values, ...known.flatMap(d => [inside(d.low), inside(d.high)])]);
    const x = scale(logarithmic, used, said);
    const band = { fy: "label", insetTop: 20, fillOpacity: 0.16 };
    const plot = drawn({
      ...facets(cells, 56),
      x,
      y: { domain: [1, 0], axis: null, insetTop: 20 },
      marks: [
        Plot.rect(limits, { ...band, x1: x.domain[0], x2: "first", fill: "var(--good)" }),
        Plot.rect(limits, { ...band, x1: "first", x2: "second", fill: "var(--open)" }),
        Plot.ruleX(cells, { fy: "label", x: none, stroke: "var(--was)", insetTop: 20 }),
        heads(cells.map(cell => ({ ...head(cell), head: `${head(cell).head}  ${said(cell.change.value)}` }))),
        Plot.ruleY(known, { ...INTERVAL, x1: d => inside(d.low), x2: d => inside(d.high) }),
        Plot.dot(pairs, { fy: "label", x: "value", y: "y", fill: "var(--now)", r: 2.8, fillOpacity: 0.75, title: "title" }),
        Plot.ruleX(cells, { ...MIDDLE, x: d => d.change.value }),
      ],
    }, `Change of ${metric}`, cells.map(({ label, change, pairs: own, allowed, effect }) => [
      `${label}: ${said(change.value)}`, ...(change.low < change.high ? [`${change.level > 0 ? "interval" : "range"} ${said(change.low)} to ${said(change.high)}`] : []),
      ...(allowed === null ? [] : [`allowed ${said(allowed)}`]), ...(effect === null ? [] : [`effect ${said(effect)}`]), `${own.length} pairs`].join(", ")));
    const signs = [
      ...(pairs.length ? [[swatch(DOT, { fill: "var(--now)" }), "a pair of launches"]] : []),
      [interval(), "interval, with its middle"], [reference(), "no change"],
      ...(limits.length ? [[swatch(BOX, { fill: "var(--good)", "fill-opacity": 0.3 }), "below margin and effect"], [swatch(BOX, { fill: "var(--open)", "fill-opacity": 0.3 }), "between the two"]] : []),
    ];
    const cut = known.some(d => d.low < used[0] || d.high > used[1]);
    const aside = `${pairs.length ? "What was measured over its reference, pair by pair." : "Against recordings there are no pairs."}${logarithmic ? " Logarithmic scale." : ""}${cut ? " An interval that is wider than the plot ends at its edge." : ""}${left(cells.length, having.length)}`;
    return figure(`Change: ${metric}`, aside, legend(signs), plot);
  }

  // ---- where threads wait

  function waits(test) {
    const having = test.cells.filter(cell => cell.waits);
    const cells = BAD_FIRST(having).slice(0, MANY);
    const parts = cells.flatMap(cell => STATES.filter(([key]) => cell.waits[key] > 0)
      .map(([key, name]) => ({ cell: cell.label, key, name, share: cell.waits[key] })));
    const used = STATES.filter(([key]) => parts.some(part => part.key === key));
    const stack = { fy: "cell", y: () => "", x: "share", order: used.map(([key]) => key), z: "key" };
    const long = d => d.share > 0.9 * (d.name.length * 8 + 34) / width();
    const plot = drawn({
      ...facets(cells, 46),
      x: { label: "share of the workers' time (%)", percent: true, domain: [0, Math.max(100, ...cells.map(cell => 100 * d3.sum(Object.values(cell.waits))))] },
      y: { axis: null, insetTop: 18, padding: 0 },
      marks: [
        heads(cells.map(head)),
        Plot.barX(parts, Plot.stackX({ ...stack, fill: d => `var(--c-${d.key})`, insetLeft: 0.5, insetRight: 0.5, title: d => `${d.cell}, ${d.name}: ${(100 * d.share).toFixed(1)} %` })),
        Plot.text(parts, Plot.stackX({ ...stack, text: d => (long(d) ? `${d.name} ${(100 * d.share).toFixed(0)} %` : ""), fill: d => (d.key === "process" ? "var(--on-process)" : "#000") })),
      ],
    }, "Where threads wait", cells.map(cell => `${cell.label}: ${parts.filter(part => part.cell === cell.label).map(part => `${part.name} ${(100 * part.share).toFixed(0)} %`).join(", ")}`));
    return figure("Where threads wait", `From samples of the workers' threads.${left(cells.length, having.length)}`,
      legend(used.map(([key, name]) => [swatch(BOX, { fill: `var(--c-${key})` }), name])), plot);
  }

  // ---- how long single waits for the GIL are: under load they end at multiples of the switch interval

  function gilWaits(test) {
    const having = test.cells.filter(cell => cell.gil);
    const cells = BAD_FIRST(having).slice(0, MANY);
    const bins = cells.flatMap(({ label, gil }) => gil.bins.map(([low, high, share]) => ({ label, low, high, share, y: share / Math.max(...gil.bins.map(bin => bin[2])) })));
    const said = ({ gil }) => ["p50", "p95"].filter(name => gil[name] !== null).map(name => `${name} ${time(gil[name])}`).join(", ");
    const plot = drawn({
      ...facets(cells, 86),
      x: scale(true, bins.flatMap(({ low, high }) => [low, high]), time),
      y: { axis: null, insetTop: 20, domain: [0, 1] },
      marks: [
        heads(cells.map(cell => ({ ...head(cell), head: `${head(cell).head}  ${said(cell)}` }))),
        Plot.rect(bins, { fy: "label", x1: "low", x2: "high", y1: 0, y2: "y", fill: "var(--c-gil)", title: d => `${d.label}, ${time(d.low)} to ${time(d.high)}: ${(100 * d.share).toFixed(1)} %` }),
        Plot.ruleY(cells, { fy: "label", y: 0, stroke: "var(--was)" }),
      ],
    }, "How long single waits for the GIL are", cells.map(cell => `${cell.label}: ${said(cell)}`));
    return figure("How long single waits for the GIL are", `From samples. Bumps are multiples of the switch interval (5 ms by default). Logarithmic scale.${left(cells.length, having.length)}`, plot);
  }

  // ---- cells that differ in what an axis shows alone

  const settingOf = (cell, name) => cell.settings[name] ?? "";
  const familiesOf = (test, cells, axes) => d3.groups(cells, cell =>
    [cell.family, ...test.varied.filter(name => !axes.includes(name)).map(name => `${name} ${settingOf(cell, name)}`)].join(", "));

  // ---- throughput over workers, where a lock limits it

  function scalings(test) {
    const families = familiesOf(test, test.cells, ["workers"]).filter(([, cells]) => cells.some(cell => cell.locks));
    if (!families.length) return null;
    const multiples = element("div", undefined, { className: "multiples" });
    for (const [name, cells] of families.slice(0, MANY)) {
      const { allow, said } = d3.least(cells.filter(cell => cell.locks).map(cell => cell.locks), locks => locks.allow);
      const points = [{ workers: 1, times: 1 }, ...cells.filter(cell => cell.scaling).map(cell => ({ workers: Number(cell.settings.workers), times: cell.scaling }))];
      const most = Math.max(16, ...points.map(d => d.workers));
      const part = element("div");
      part.append(element("small", `${name}: ${said}`), drawn({
        width: 320, height: 200, marginLeft: 40, marginBottom: 36,
        x: { label: "workers", type: "log", base: 2, domain: [1, most] }, y: { label: "throughput (x)", grid: true, zero: true },
        marks: [
          Plot.line(d3.range(1, most + 0.01, 0.1), { x: n => n, y: n => Math.min(n, allow), stroke: "var(--c-lock)", strokeWidth: 2 }),
          Plot.dot(points, { x: "workers", y: "times", fill: "var(--now)", title: d => `${d.workers} workers: ${short(d.times)}x` }),
        ],
      }, `Throughput of ${name} over workers`, [said, ...points.map(d => `${d.workers} workers: ${short(d.times)}`)]));
      multiples.append(part);
    }
    return figure("Throughput over workers", "Over that of one worker. The line is the most that locks allow, if other limits do not come first.", multiples);
  }

  // ---- a heat map where two things vary

  function heats(test) {
    if (test.varied.length < 2) return [];
    const timers = [...new Set(test.cells.flatMap(cell => Object.keys(cell.timers)))];
    return [["Time", cell => cell.wall?.value], ...timers.map(name => [name, cell => cell.timers[name]])].map(([what, ns]) => heat(test, what, ns));
  }

  function heat(test, what, ns) {
    const [y, x] = test.varied.length > 2 && test.varied[0] === "workers" ? test.varied.slice(1, 3) : test.varied;
    const timed = test.cells.filter(ns);
    const families = familiesOf(test, timed, [x, y]).filter(([, cells]) => cells.length > 1);
    if (!families.length) return null;
    const [least, most] = d3.extent(timed, cell => Math.log(ns(cell)));
    const place = cell => (most > least ? (Math.log(ns(cell)) - least) / (most - least) : 0.5);
    const order = name => [...new Set(timed.map(cell => settingOf(cell, name)))].sort((a, b) => compare(a, b));
    const color = cell => d3.interpolateCividis(1 - place(cell));
    const multiples = element("div", undefined, { className: "multiples" });
    for (const [name, cells] of families.slice(0, MANY)) {
      const at = { x: cell => settingOf(cell, x), y: cell => settingOf(cell, y) };
      const part = element("div");
      part.append(element("small", name), drawn({
        width: 320, height: 40 + 34 * order(y).length, marginLeft: 60, marginTop: 4, marginBottom: 36,
        x: { label: x, domain: order(x), padding: 0.04 }, y: { label: y, domain: order(y), padding: 0.06 },
        marks: [
          Plot.cell(cells, { ...at, fill: color, title: cell => cell.label }),
          Plot.text(cells, { ...at, text: cell => time(ns(cell)), fill: cell => (d3.lab(color(cell)).l > 55 ? "#000" : "#fff") }),
        ],
      }, `${what} of ${name} by ${x} and ${y}`, cells.map(cell => `${x} ${settingOf(cell, x)}, ${y} ${settingOf(cell, y)}: ${time(ns(cell))}`)));
      multiples.append(part);
    }
    return figure(`${what} by ${x} and ${y}`, "The darker, the longer (logarithmic).", multiples);
  }

  // ---- the page

  function plotsOf(test) {
    const metrics = [...new Set(test.cells.flatMap(cell => Object.keys(cell.changes)))].sort((a, b) => (b === "wall") - (a === "wall"));
    return [
      test.cells.some(cell => cell.wall) ? walls(test) : null,
      ...metrics.map(metric => changes(test, metric)),
      test.cells.some(cell => cell.waits) ? waits(test) : null,
      test.cells.some(cell => cell.gil) ? gilWaits(test) : null,
      scalings(test),
      ...heats(test),
    ].filter(Boolean);
  }

  // Plots are drawn when they come near the screen.
  const tests = new Map(data.tests.map(test => [test.anchor, test]));
  const places = document.querySelectorAll(".plots");
  const near = new IntersectionObserver(found => {
    for (const { target, isIntersecting } of found) if (isIntersecting) draw(target);
  }, { rootMargin: "100%" });

  function draw(place) {
    near.unobserve(place);
    place.replaceChildren(...plotsOf(tests.get(place.dataset.test)));
  }

  for (const place of places) near.observe(place);
  const opened = [];
  const unfold = () => {
    for (const place of places) if (!place.firstChild) draw(place);
    for (const each of document.querySelectorAll("details:not([open])")) { each.open = true; opened.push(each); }
  };
  const fold = () => { for (const each of opened.splice(0)) each.open = false; };
  matchMedia("print").addEventListener("change", event => (event.matches ? unfold() : fold()));
  addEventListener("beforeprint", unfold);
  addEventListener("afterprint", fold);
  let drawnAt = width();
  addEventListener("resize", () => {
    if (Math.abs(width() - drawnAt) < 40 || matchMedia("print").matches) return;
    drawnAt = width();
    for (const place of places) near.observe(place);
  });
})();
