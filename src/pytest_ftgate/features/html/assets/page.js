// Sorts the tables, and draws the plots from the page's block of data. Colours and shapes are page.css's.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const UNITS = {
    time: [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]],
    size: [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30]],
    share: [["%", 0.01]],
    ratio: [["x", 1]],
    number: [["", 1]],
  };
  const STATES = [
    ["running", "running"], ["runnable", "runnable"], ["gil", "GIL"], ["lock", "lock"], ["queue", "queue"],
    ["process", "another process"], ["unattributed", "unattributed"], ["asleep", "asleep"],
  ];
  const ROLES = [
    ["main", "main", "var(--now)", "circle"], ["workers", "workers", "var(--c-gil)", "square"],
    ["servers", "servers", "var(--good)", "triangle"], ["others", "others", "var(--c-unattributed)", "diamond"],
    ["tree", "all processes", "var(--now)", "circle"],
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

  for (const header of document.querySelectorAll(".sortable thead th")) {
    header.setAttribute("aria-sort", "none");
    header.firstElementChild.addEventListener("click", () => sort(header));
  }

  // ---- pieces of plots

  function scaled(unit, values) {
    if (!UNITS[unit]) console.error(`no unit "${unit}": its values are drawn as plain numbers`);
    const known = UNITS[unit] ?? UNITS.number;
    const largest = Math.max(...values.map(Math.abs));
    const [name, size] = known.filter(([, each]) => largest >= each).pop() ?? known[0];
    return { name, of: value => value / size };
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
  const LINE = "M-7,0h14";
  const mark = (name, size = 60) => d3.symbol(d3[`symbol${name[0].toUpperCase()}${name.slice(1)}`], size)();

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
  const grid = { stroke: "var(--line)", strokeOpacity: 1 };

  // ---- changes: the ratio of each pair of launches and its interval, on the limits

  function changes(test, metric) {
    const having = test.cells.filter(cell => cell.changes[metric]);
    const cells = BAD_FIRST(having).slice(0, MANY).map(cell => ({ ...cell.changes[metric], ...cell, name: cell.label }));
    const { unit, label } = having[0].changes[metric];
    const none = unit === "points" ? 0 : 1;
    const said = value => `${value > none ? "+" : ""}${short(100 * (value - none))} ${unit === "points" ? "points" : "%"}`;
    const pairs = cells.flatMap(({ name, pairs: own }) => own.map((value, at) => ({ name, value, y: 0.22 + 0.56 * (own.length > 1 ? at / (own.length - 1) : 0.5), title: `${name}, pair ${at + 1}: ${said(value)}` })));
    const limits = cells.filter(d => d.allowed !== null && d.effect !== null).map(({ name, allowed, effect }) => ({ name, first: Math.min(allowed, effect), second: Math.max(allowed, effect) }));
    const known = cells.filter(d => d.change.level > 0).map(({ name, change }) => ({ name, ...change }));
    // An interval of few pairs may be far wider than they are: it is cut at the edge, so that the pairs stay apart.
    const values = [none, ...pairs.map(d => d.value), ...cells.map(d => d.change.value), ...limits.flatMap(d => [d.first, d.second])];
    const logarithmic = unit !== "points" && Math.min(...values) > 0 && Math.max(...values) > 3 * Math.min(...values);
    const [least, most] = d3.extent(values);
    const room = logarithmic ? [least / 1.3, most * 1.3] : [least - 0.4 * (most - least), most + 0.4 * (most - least)];
    const inside = value => Math.min(room[1], Math.max(room[0], value));
    const used = d3.extent([...values, ...known.flatMap(d => [inside(d.low), inside(d.high)])]);
    const edge = 0.03 * (used[1] - used[0] || 1);
    const domain = [logarithmic ? used[0] / 1.03 : used[0] - edge, logarithmic ? used[1] * 1.03 : used[1] + edge];
    const band = { fy: "name", insetTop: 20, fillOpacity: 0.16 };
    const plot = drawn({
      ...facets(cells, 56),
      x: { type: logarithmic ? "log" : "linear", domain, label: null, ticks: Math.max(3, Math.round(width() / 130)), tickFormat: said },
      y: { domain: [1, 0], axis: null, insetTop: 20 },
      marks: [
        Plot.rect(limits, { ...band, x1: domain[0], x2: "first", fill: "var(--good)" }),
        Plot.rect(limits, { ...band, x1: "first", x2: "second", fill: "var(--open)" }),
        Plot.ruleX(cells, { fy: "name", x: none, stroke: "var(--was)", insetTop: 20 }),
        heads(cells.map(cell => ({ ...head(cell), head: `${head(cell).head}  ${said(cell.change.value)}` }))),
        Plot.ruleY(known, { fy: "name", y: 0.5, x1: d => inside(d.low), x2: d => inside(d.high), stroke: "var(--now)", strokeWidth: 9, strokeOpacity: 0.3 }),
        Plot.dot(pairs, { fy: "name", x: "value", y: "y", fill: "var(--now)", r: 2.8, fillOpacity: 0.75, title: "title" }),
        Plot.ruleX(cells, { fy: "name", x: d => d.change.value, y1: 0.24, y2: 0.76, stroke: "var(--now)", strokeWidth: 2.5 }),
      ],
    }, `Change of ${label}`, cells.map(({ name, change, pairs: own, allowed, effect }) => [
      `${name}: ${said(change.value)}`, ...(change.level > 0 ? [`interval ${said(change.low)} to ${said(change.high)}`] : []),
      ...(allowed === null ? [] : [`allowed ${said(allowed)}`]), ...(effect === null ? [] : [`effect ${said(effect)}`]), `${own.length} pairs`].join(", ")));
    const signs = [
      ...(pairs.length ? [[swatch(mark("circle"), { fill: "var(--now)" }), "a pair of launches"]] : []),
      [swatch(LINE, { stroke: "var(--now)", "stroke-width": 7, "stroke-opacity": 0.3 }), "interval, with its middle"],
      [swatch("M0,-6v12", { stroke: "var(--was)", "stroke-width": 1.4 }), "no change"],
      ...(limits.length ? [[swatch(BOX, { fill: "var(--good)", "fill-opacity": 0.3 }), "below margin and effect"], [swatch(BOX, { fill: "var(--open)", "fill-opacity": 0.3 }), "between the two"]] : []),
    ];
    const cut = known.some(d => d.low < used[0] || d.high > used[1]);
    const aside = `${pairs.length ? "What was measured over its reference, pair by pair." : "Against recordings there are no pairs."}${logarithmic ? " Logarithmic scale." : ""}${cut ? " An interval that is wider than the plot ends at its edge." : ""}${left(cells.length, having.length)}`;
    return figure(`Change: ${label}`, aside, legend(signs), plot);
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

  // ---- memory by role over the run

  function memory(test) {
    const having = test.cells.filter(cell => cell.memory.length);
    const cells = BAD_FIRST(having).slice(0, MANY);
    const points = cells.flatMap(cell => cell.memory.flatMap(point => Object.entries(point.roles)
      .filter(([, bytes]) => bytes !== null)
      .map(([role, bytes]) => ({ cell: cell.label, role, at: point.at_s, bytes }))));
    if (!points.length) return null;
    const scale = scaled("size", points.map(point => point.bytes));
    const roles = ROLES.filter(([role]) => points.some(point => point.role === role));
    const look = new Map(roles.map(([role, , color, symbol]) => [role, { color, symbol }]));
    const multiples = element("div", undefined, { className: "multiples" });
    const most = Math.max(...points.map(point => scale.of(point.bytes)));
    const end = Math.max(1, ...points.map(point => point.at));
    for (const cell of cells) {
      const own = points.filter(point => point.cell === cell.label);
      const each = { x: "at", y: d => scale.of(d.bytes), stroke: d => look.get(d.role).color };
      const part = element("div");
      part.append(element("small", head(cell).head), drawn({
        width: 320, height: 150, marginLeft: 40, marginTop: 10, marginBottom: 34,
        x: { label: "seconds", domain: [0, end], ticks: 4 }, y: { domain: [0, 1.08 * most], label: null, ticks: 4 },
        marks: [
          Plot.gridY({ ...grid, ticks: 4 }),
          Plot.lineY(own, { ...each, z: "role", strokeWidth: 1.2 }),
          Plot.dot(own, { ...each, fill: d => look.get(d.role).color, symbol: d => look.get(d.role).symbol, r: 2.6, title: d => `${d.role}: ${scale.of(d.bytes).toPrecision(4)} ${scale.name}` }),
        ],
      }, `Memory of ${cell.label} by role in ${scale.name}`, roles.filter(([role]) => own.some(point => point.role === role)).map(([role, name]) => {
        const [low, high] = d3.extent(own.filter(point => point.role === role), point => scale.of(point.bytes));
        return `${name}: ${short(low)} to ${short(high)}`;
      })));
      multiples.append(part);
    }
    return figure(`Memory by role over the run (${scale.name})`,
      `USS, the part that was written to, in each sample while all workers are held at work.${left(cells.length, having.length)}`,
      legend(roles.map(([, name, color, symbol]) => [swatch(mark(symbol), { fill: color }), name])), multiples);
  }

  // ---- the scaling curve with Amdahl's

  function scaling(test) {
    const families = d3.groups(test.cells.filter(cell => cell.figures.scaling),
      cell => [cell.family, ...Object.entries(cell.params).map(([name, literal]) => `${name}=${literal}`)].join(" "));
    if (!families.length) return null;
    const workers = Math.max(...families.flatMap(([, cells]) => cells.map(cell => cell.workers)));
    const top = Math.max(1.5, ...families.flatMap(([, cells]) => cells.map(cell => cell.figures.scaling.value)));
    const multiples = element("div", undefined, { className: "multiples" });
    for (const [name, cells] of families.slice(0, MANY)) {
      const points = [{ workers: 1, value: 1 }, ...cells.map(cell => ({ workers: cell.workers, ...cell.figures.scaling }))]
        .sort((a, b) => a.workers - b.workers);
      const last = d3.greatest(cells, cell => cell.workers);
      const serial = last.figures.serial_fraction;
      const amdahl = serial !== null && serial >= 0 && last.figures.scaling.value >= 1
        ? d3.range(1, workers + 0.01, (workers - 1) / 40 || 1).map(n => ({ n, s: 1 / (serial + (1 - serial) / n) })) : [];
      const part = element("div");
      part.append(element("small", amdahl.length ? `${name}, serial fraction ${(100 * serial).toFixed(0)} %` : name), drawn({
        width: 320, height: 190, marginLeft: 34, marginBottom: 34,
        x: { label: "workers", domain: [1, workers], ticks: [...new Set(points.map(point => point.workers))], tickFormat: "d", inset: 8 },
        y: { domain: [0, 1.15 * top], label: "times one worker", ticks: 4 },
        marks: [
          Plot.gridY({ ...grid, ticks: 4 }),
          Plot.line([[1, 1], [Math.min(workers, 1.15 * top), Math.min(workers, 1.15 * top)]], { stroke: "var(--was)", strokeDasharray: "1,4" }),
          Plot.line(amdahl, { x: "n", y: "s", stroke: "var(--c-gil)", strokeDasharray: "6,3" }),
          Plot.ruleX(points.filter(point => point.level > 0), { x: "workers", y1: d => Math.max(0, d.low), y2: d => Math.min(1.15 * top, d.high), stroke: "var(--now)", strokeWidth: 6, strokeOpacity: 0.28 }),
          Plot.line(points, { x: "workers", y: "value", stroke: "var(--now)", strokeWidth: 1.6 }),
          Plot.dot(points, { x: "workers", y: "value", fill: "var(--now)", r: 3.5, title: d => `${d.workers} workers: ${d.value.toPrecision(3)}x` }),
        ],
      }, `Scaling of ${name}`, points.map(point => `${point.workers} ${point.workers === 1 ? "worker" : "workers"}: ${short(point.value)} times one`)));
      multiples.append(part);
    }
    return figure("Scaling", "Work done in the same time, against one worker.", legend([
      [swatch(mark("circle"), { fill: "var(--now)" }), "measured, with its interval"],
      [swatch(LINE, { stroke: "var(--c-gil)", "stroke-dasharray": "5,3", "stroke-width": 2 }), "Amdahl's law at the serial fraction of the most workers"],
      [swatch(LINE, { stroke: "var(--was)", "stroke-dasharray": "1,3", "stroke-width": 2 }), "linear"],
    ]), multiples);
  }

  // ---- a heat map where two things vary

  function heat(test) {
    if (test.varied.length < 2) return null;
    const [y, x] = test.varied.length > 2 && test.varied[0] === "workers" ? test.varied.slice(1, 3) : test.varied;
    const of = (cell, name) => (name === "workers" ? String(cell.workers) : cell.params[name] ?? "");
    const timed = test.cells.filter(cell => cell.figures.wall_ns);
    const rest = test.varied.filter(name => name !== x && name !== y);
    const families = d3.groups(timed, cell => [cell.family, ...rest.map(name => `${name} ${of(cell, name)}`)].join(", ")).filter(([, cells]) => cells.length > 1);
    if (!families.length) return null;
    const walls = timed.map(cell => cell.figures.wall_ns.value);
    const [least, most] = d3.extent(walls.map(Math.log));
    const place = ns => (most > least ? (Math.log(ns) - least) / (most - least) : 0.5);
    const order = name => [...new Set(timed.map(cell => of(cell, name)))].sort((a, b) => compare(a, b));
    const text = ns => { const { name, of: to } = scaled("time", [ns]); return `${to(ns).toPrecision(3)} ${name}`; };
    const color = ns => d3.interpolateCividis(1 - place(ns));
    const multiples = element("div", undefined, { className: "multiples" });
    for (const [name, cells] of families.slice(0, MANY)) {
      const at = { x: cell => of(cell, x), y: cell => of(cell, y) };
      const part = element("div");
      part.append(element("small", name), drawn({
        width: 320, height: 40 + 34 * order(y).length, marginLeft: 60, marginTop: 4, marginBottom: 36,
        x: { label: x, domain: order(x), padding: 0.04 }, y: { label: y, domain: order(y), padding: 0.06 },
        marks: [
          Plot.cell(cells, { ...at, fill: cell => color(cell.figures.wall_ns.value), title: cell => cell.label }),
          Plot.text(cells, { ...at, text: cell => text(cell.figures.wall_ns.value), fill: cell => (d3.lab(color(cell.figures.wall_ns.value)).l > 55 ? "#000" : "#fff") }),
        ],
      }, `Time of ${name} by ${x} and ${y}`, cells.map(cell => `${x} ${of(cell, x)}, ${y} ${of(cell, y)}: ${text(cell.figures.wall_ns.value)}`)));
      multiples.append(part);
    }
    return figure(`Time by ${x} and ${y}`, "The darker, the longer (logarithmic).", multiples);
  }

  // ---- history

  // Of these places on an axis that ends at `last` those whose labels do not run into one another.
  const apart = (places, last) => places.reduce((kept, at) => (kept.every(each => Math.abs(each - at) >= last / 4) ? [...kept, at] : kept), []);

  function history(test) {
    const series = BAD_FIRST(test.cells).flatMap(cell => cell.history.map(each => ({ cell: cell.label, ...each }))).filter(each => each.points.length > 1);
    if (!series.length) return null;
    const multiples = element("div", undefined, { className: "multiples" });
    for (const each of series.slice(0, MANY)) {
      const scale = scaled(each.unit, each.points.map(point => point.value.value));
      const points = each.points.map((point, at) => ({ ...point, at, mid: scale.of(point.value.value), low: scale.of(point.value.low), high: scale.of(point.value.high) }));
      const last = points.length - 1;
      // An interval of few launches may be far wider than all recordings lie apart: it is cut, as in the terminal.
      const [least, most] = d3.extent(points, d => d.mid);
      const span = Math.max(most - least, 0.1 * Math.abs(most));
      const [low, high] = [Math.max(least - span, Math.min(...points.map(d => d.low))), Math.min(most + span, Math.max(...points.map(d => d.high)))];
      const part = element("div");
      part.append(element("small", `${each.cell}, ${each.label}${scale.name ? ` (${scale.name})` : ""}`), drawn({
        width: 320, height: 170, marginLeft: 44, marginBottom: 40,
        x: { label: "recording, oldest first", domain: [0, last], inset: 10, ticks: apart([0, last, ...each.changes], last), tickFormat: at => points[at].commit.slice(0, 7) },
        y: { label: null, domain: [low, high], nice: true, ticks: 4 },
        marks: [
          Plot.gridY({ ...grid, ticks: 4 }),
          Plot.ruleX(each.changes, { x: at => at - 0.5, stroke: "var(--fails)", strokeDasharray: "4,3" }),
          Plot.ruleX(points.filter(point => point.value.level > 0), { x: "at", y1: d => Math.max(low, d.low), y2: d => Math.min(high, d.high), stroke: "var(--now)", strokeWidth: 5, strokeOpacity: 0.28 }),
          Plot.line(points, { x: "at", y: "mid", stroke: "var(--now)" }),
          Plot.dot(points, { x: "at", y: "mid", fill: "var(--now)", r: 3, title: d => `${d.commit}: ${d.mid.toPrecision(4)} ${scale.name}` }),
        ],
      }, `History of ${each.label} of ${each.cell}${scale.name ? ` in ${scale.name}` : ""}`, [...points.map(point => `${point.commit}: ${short(point.mid)}`), ...each.texts.map(changed => `Changed ${changed}`)]));
      for (const text of each.texts) part.append(element("small", `changed ${text}`, { className: "changed" }));
      multiples.append(part);
    }
    const changed = series.some(each => each.changes.length);
    return figure("History", "The recordings in the baselines, with their intervals.", legend([
      [swatch(mark("circle"), { fill: "var(--now)" }), "a recording, with its interval"],
      ...(changed ? [[swatch("M0,-6v12", { stroke: "var(--fails)", "stroke-dasharray": "3,2", "stroke-width": 2 }), "its level changed"]] : []),
    ]), multiples);
  }

  // ---- the page

  function plotsOf(test) {
    const metrics = [...new Set(test.cells.flatMap(cell => Object.keys(cell.changes)))].sort((a, b) => (b === "wall") - (a === "wall"));
    return [
      ...metrics.map(metric => changes(test, metric)),
      test.cells.some(cell => cell.waits) ? waits(test) : null,
      memory(test), scaling(test), heat(test), history(test),
    ].filter(Boolean);
  }

  function draw() {
    for (const test of data.tests) {
      document.querySelector(`.plots[data-test="${test.anchor}"]`).replaceChildren(...plotsOf(test));
    }
    document.documentElement.dataset.drawn = "yes";
  }

  draw();
  const opened = [];
  const unfold = () => {
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
    draw();
  });
})();
