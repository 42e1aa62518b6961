// Draws the report from the JSON in the page. No libraries, no network; texts are set as text, never as HTML.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.getElementById("report");
  const SVG = "http://www.w3.org/2000/svg";
  const COLOURS = 12;
  const DASHES = ["", "2 3", "7 4", "1 5", "9 3 2 3"];
  // Viridis, from Matplotlib (CC0), at nine stops.
  const HEAT = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129],
    [92, 200, 99], [170, 220, 50], [253, 231, 37]];

  // --- small helpers -------------------------------------------------------------------------------------
  function make(parent, tag, properties = {}, text = null) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    parent.append(element);
    return element;
  }
  function draw(parent, tag, properties = {}, text = null) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
    if (text !== null) element.textContent = text;
    parent.append(element);
    return element;
  }
  function short(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
    return String(Number(value.toPrecision(5)));
  }
  const known = (value) => value !== null && Number.isFinite(value);
  function section(title, hint) {
    const part = make(root, "section");
    make(part, "h2", {}, title);
    if (hint) make(part, "p", { class: "hint" }, hint);
    return part;
  }
  function table(parent, head, rows, numeric = []) {
    // On a phone a row of many cells becomes a block of lines, each with its title.
    const frame = make(make(parent, "div", { class: "scroll" }), "table", head.length > 2 ? { class: "stack" } : {});
    const top = make(make(frame, "thead"), "tr");
    head.forEach((title, k) => make(top, "th", numeric.includes(k) ? { class: "n" } : {}, title));
    const body = make(frame, "tbody");
    for (const row of rows) {
      const line = make(body, "tr");
      row.forEach((cell, k) => make(line, "td", { "data-title": head[k] || "", ...(numeric.includes(k) ? { class: "n" } : {}) }, cell));
    }
    return frame;
  }

  // --- the tooltip ---------------------------------------------------------------------------------------
  const tip = make(document.body, "div", { id: "tip", hidden: "", role: "status" });
  function showTip(event, lines) {
    tip.textContent = "";
    lines.forEach((line, k) => make(tip, k ? "div" : "b", {}, line));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(6, event.clientX + 14), window.innerWidth - box.width - 6);
    const above = event.clientY - box.height - 12;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  }
  const hideTip = () => { tip.hidden = true; };

  // --- axes ----------------------------------------------------------------------------------------------
  function ticks(low, high, log, count) {
    if (log) {
      const found = [];
      const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
      const every = Math.max(1, Math.ceil((last - first) / count));
      for (let power = first; power <= last; power += every) found.push(10 ** power);
      const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
      return inside.length >= 2 ? inside : [low, high];
    }
    const span = high - low || 1;
    const raw = span / count, size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((value) => value >= raw);
    const found = [];
    for (let k = Math.ceil(low / step); k * step <= high + 1e-9 * span; k += 1) found.push(k * step);
    return found;
  }
  // As many digits as the axis needs to tell its ticks apart, and no more.
  function fitting(value, [low, high]) {
    const span = high - low, size = Math.max(Math.abs(low), Math.abs(high));
    if (Math.abs(value) < 1e-9 * span) return "0";
    if (size >= 1e6 || size < 1e-3) return value.toExponential(Math.min(6, Math.max(1, Math.ceil(Math.log10(size / span)) + 1))).replace("e+", "e");
    return String(Number(value.toFixed(Math.max(0, 2 - Math.floor(Math.log10(span))))));
  }
  function scale(low, high, from, to, log) {
    const f = log ? Math.log10 : (value) => value;
    const a = f(low), b = f(high);
    return (value) => from + (to - from) * (b === a ? 0.5 : (f(value) - a) / (b - a));
  }
  // A few outliers of a noisy curve must not flatten everything else: the axis covers what nearly all points need,
  // and bands up to as much again. What sticks out is cut at the border.
  function typical(curve, usable, logX) {
    const points = [];
    curve.y.forEach((y, j) => {
      if (!usable(y)) return;
      // A point counts for as much of the axis as it stands for: thinned curves are denser at their start.
      const left = curve.x[Math.max(0, j - 1)], right = curve.x[Math.min(curve.x.length - 1, j + 1)];
      points.push([y, logX ? 1 : Math.max(right - left, 0)]);
    });
    if (!points.length) return null;
    const end = points[points.length - 1][0];
    points.sort((a, b) => a[0] - b[0]);
    const all = [points[0][0], points[points.length - 1][0]];
    const total = points.reduce((sum, point) => sum + point[1], 0);
    if (points.length <= 60 || !(total > 0)) return all;
    const quantile = (share) => {
      let seen = 0;
      for (const [y, weight] of points) { seen += weight; if (seen >= share * total) return y; }
      return all[1];
    };
    let [low, high] = [quantile(0.01), quantile(0.99)];
    const most = [quantile(0.05), quantile(0.95)], room = 3 * (most[1] - most[0]);
    if (room > 0 && high - low > 3 * room) { low = Math.max(low, most[0] - room); high = Math.min(high, most[1] + room); }
    return [Math.min(low, end), Math.max(high, end)];
  }
  function comfortable(curves, lines, log, logX) {
    const usable = (value) => known(value) && (!log || value > 0);
    let low = Infinity, high = -Infinity;
    for (const curve of curves) {
      const range = typical(curve, usable, logX);
      if (range) { low = Math.min(low, range[0]); high = Math.max(high, range[1]); }
    }
    if (low === Infinity) return null;
    const room = (high - low) / 2;
    let bandLow = low, bandHigh = high;
    for (const curve of curves) {
      for (const value of curve.low || []) if (usable(value)) bandLow = Math.min(bandLow, value);
      for (const value of curve.high || []) if (usable(value)) bandHigh = Math.max(bandHigh, value);
    }
    const whole = curves.some((curve) => curve.whole);
    low = whole ? bandLow : Math.max(bandLow, low - room);
    high = whole ? bandHigh : Math.min(bandHigh, high + room);
    for (const line of lines) if (usable(line.y)) { low = Math.min(low, line.y); high = Math.max(high, line.y); }
    return extent(log ? [Math.max(low, high * 1e-12), high] : [low, high], log);
  }
  function extent(values, log) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (!known(value) || (log && value <= 0)) continue;
      low = Math.min(low, value); high = Math.max(high, value);
    }
    if (low === Infinity) return null;
    if (low === high) { const room = Math.abs(low) * 0.05 || 1; return log ? [low / 2, high * 2] : [low - room, high + room]; }
    const room = 0.05 * (high - low);
    return log ? [low / 1.15, high * 1.15] : [low - room, high + room];
  }

  // --- a chart of curves -----------------------------------------------------------------------------------
  // spec: {title, explanation, curves: [{label, group, style, x, y, low?, high?, dots?}], lines, xLabel, verticals}
  let clips = 0;
  function chart(parent, spec) {
    const card = make(parent, "figure", { class: "card chart", style: "margin:0" });
    make(card, "h3", {}, spec.title);
    if (spec.explanation) make(card, "p", { class: "hint" }, spec.explanation);
    const state = { logX: false, logY: false };
    const holder = make(card, "div");
    const legend = make(card, "div", { class: "row legend" });
    const axes = make(card, "div", { class: "row" });
    const oneGroup = new Set(spec.curves.map((curve) => curve.group)).size === 1;
    const colour = (curve, k) => `var(--c${(oneGroup ? k : curve.group) % COLOURS})`;

    // One toggle per curve; or, where several groups have several kinds of curves, one per group (its colour) and
    // one per kind (its dashes). With many curves only the first kind is shown until one asks for more.
    const groups = [...new Set(spec.curves.map((curve) => curve.group))];
    const kinds = [...new Set(spec.curves.map((curve) => curve.kind))];
    const crossed = groups.length > 1 && kinds.length > 1;
    const switches = crossed
      ? [
        ...groups.map((group) => ({ of: (curve) => curve.group === group, label: data.groups[group].label, colour: `var(--c${group % COLOURS})`, style: 0, runs: data.groups[group].runs })),
        ...kinds.map((kind, k) => ({ of: (curve) => curve.kind === kind, label: kind, colour: "var(--ink)", style: k, runs: 1, off: k > 0 && spec.curves.length > 6 })),
      ]
      : spec.curves.map((curve, k) => ({ of: (other) => other === curve, label: curve.label, colour: colour(curve, k), style: oneGroup ? 0 : curve.style, runs: curve.runs }));
    const visible = (curve) => !switches.some((one) => one.off && one.of(curve));
    for (const one of switches) {
      const button = make(legend, "button", { type: "button", "aria-pressed": String(!one.off), class: "toggle" });
      make(button, "span", { class: "swatch", style: `border-color:${one.colour};border-top-style:${["solid", "dotted", "dashed"][one.style % 3]}` });
      button.append(one.label + (one.runs > 1 ? ` (${one.runs} runs)` : ""));
      button.addEventListener("click", () => {
        one.off = !one.off;
        button.setAttribute("aria-pressed", String(!one.off));
        redraw();
      });
    }
    const axis = (name, key, possible) => {
      if (!possible) return;
      const button = make(axes, "button", { type: "button", class: `axis ${key}`, "aria-pressed": "false" }, name);
      button.addEventListener("click", () => {
        state[key] = !state[key];
        button.setAttribute("aria-pressed", String(state[key]));
        redraw();
      });
    };
    axis("log x", "logX", spec.curves.some((curve) => curve.x.some((x) => x > 0)));
    axis("log y", "logY", spec.curves.some((curve) => curve.y.some((y) => known(y) && y > 0)));
    const each = Math.max(...spec.curves.map((curve) => curve.each || 1));
    const notes = [];
    if (each > 1) notes.push(`each point is the mean of about ${each} iterations`);
    if (spec.curves.some((curve) => curve.runs > 1)) notes.push("bands: 95% confidence of the mean over seeds");
    if (notes.length) make(axes, "span", { class: "hint" }, notes.join("; "));

    function redraw() {
      holder.textContent = "";
      const width = Math.max(260, Math.round(holder.clientWidth || 430));
      const height = Math.round(Math.min(320, Math.max(210, width * 0.58)));
      const pad = { left: 58, right: 12, top: 10, bottom: 38 };
      const svg = draw(holder, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.title });
      const shown = spec.curves.filter(visible).map((curve) => ({ ...curve, k: spec.curves.indexOf(curve) }));
      const usableX = (x) => known(x) && (!state.logX || x > 0);
      const usableY = (y) => known(y) && (!state.logY || y > 0);
      const xs = extent(shown.flatMap((curve) => curve.x), state.logX);
      const ys = comfortable(shown, spec.lines || [], state.logY, state.logX);
      if (!xs || !ys) { draw(svg, "text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing to draw"); return; }
      if (!state.logX) { xs[0] = Math.min(...shown.flatMap((curve) => curve.x)); xs[1] = Math.max(...shown.flatMap((curve) => curve.x)); if (xs[0] === xs[1]) xs[1] += 1; }
      const X = scale(xs[0], xs[1], pad.left, width - pad.right, state.logX);
      const Y = scale(ys[0], ys[1], height - pad.bottom, pad.top, state.logY);
      for (const value of ticks(ys[0], ys[1], state.logY, 5)) {
        draw(svg, "line", { x1: pad.left, x2: width - pad.right, y1: Y(value), y2: Y(value), stroke: "var(--grid)" });
        draw(svg, "text", { x: pad.left - 6, y: Y(value) + 4, "text-anchor": "end" }, state.logY ? short(value) : fitting(value, ys));
      }
      for (const value of ticks(xs[0], xs[1], state.logX, width < 380 ? 4 : 6)) {
        draw(svg, "line", { x1: X(value), x2: X(value), y1: pad.top, y2: height - pad.bottom, stroke: "var(--grid)" });
        draw(svg, "text", { x: X(value), y: height - pad.bottom + 16, "text-anchor": "middle" }, short(value));
      }
      draw(svg, "text", { x: (pad.left + width - pad.right) / 2, y: height - 4, "text-anchor": "middle" }, spec.xLabel || "iteration");
      for (const line of spec.lines || []) {
        if (!usableY(line.y)) continue;
        draw(svg, "line", { class: "reference", x1: pad.left, x2: width - pad.right, y1: Y(line.y), y2: Y(line.y), stroke: "var(--good)", "stroke-dasharray": "5 4" });
        draw(svg, "text", { x: width - pad.right - 2, y: Y(line.y) + (Y(line.y) < 26 ? 14 : -5), "text-anchor": "end" }, line.label);
      }
      for (const line of spec.verticals || []) {
        if (!usableX(line.x) || line.x < xs[0] || line.x > xs[1]) continue;
        draw(svg, "line", { x1: X(line.x), x2: X(line.x), y1: pad.top, y2: height - pad.bottom, stroke: line.colour, "stroke-dasharray": "3 3" });
        const late = X(line.x) > width * 0.6;
        draw(svg, "text", { x: X(line.x) + (late ? -4 : 4), y: pad.top + 12, "text-anchor": late ? "end" : "start" }, line.label);
      }
      const clip = `clip${(clips += 1)}`;
      draw(draw(svg, "clipPath", { id: clip }), "rect", { x: pad.left, y: pad.top, width: width - pad.left - pad.right, height: height - pad.top - pad.bottom });
      const plot = draw(svg, "g", { "clip-path": `url(#${clip})` });
      for (const curve of shown) {
        const stroke = colour(curve, curve.k);
        if (curve.low) {
          for (const piece of pieces(curve.x, curve.low, usableX, usableY, curve.high)) {
            const up = piece.map((j) => `${X(curve.x[j]).toFixed(1)},${Y(curve.high[j]).toFixed(1)}`);
            const down = piece.slice().reverse().map((j) => `${X(curve.x[j]).toFixed(1)},${Y(curve.low[j]).toFixed(1)}`);
            draw(plot, "polygon", { class: "band", points: [...up, ...down].join(" "), fill: stroke, style: `opacity:calc(var(--band) * ${curve.style ? 0.45 : 1})` });
          }
        }
        for (const piece of pieces(curve.x, curve.y, usableX, usableY)) {
          const at = piece.map((j) => `${X(curve.x[j]).toFixed(1)},${Y(curve.y[j]).toFixed(1)}`);
          const dash = DASHES[(oneGroup ? 0 : curve.style) % DASHES.length];
          if (!curve.dots) draw(plot, "polyline", { class: "curve", points: at.join(" "), fill: "none", stroke, "stroke-width": curve.style ? 1.1 : 2, opacity: curve.style ? 0.8 : 1, "stroke-dasharray": dash, "stroke-linejoin": "round" });
          if (curve.dots || piece.length === 1) piece.forEach((j) => draw(plot, "circle", { cx: X(curve.x[j]), cy: Y(curve.y[j]), r: 3.5, fill: stroke }));
        }
      }
      const cross = draw(svg, "line", { y1: pad.top, y2: height - pad.bottom, stroke: "var(--soft)", visibility: "hidden" });
      const area = draw(svg, "rect", { class: "hover", x: pad.left, y: pad.top, width: width - pad.left - pad.right, height: height - pad.top - pad.bottom, fill: "transparent" });
      area.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        const at = (event.clientX - box.left) * (width / box.width);
        const lines = [];
        let place = null;
        for (const curve of shown) {
          let best = -1, least = Infinity;
          curve.x.forEach((x, j) => {
            if (!usableX(x) || !usableY(curve.y[j])) return;
            const gap = Math.abs(X(x) - at);
            if (gap < least) { least = gap; best = j; }
          });
          if (best < 0) continue;
          if (place === null) place = curve.x[best];
          const band = curve.low && known(curve.low[best]) && known(curve.high[best]) ? ` [${short(curve.low[best])}, ${short(curve.high[best])}]` : "";
          lines.push(`${curve.label}: ${short(curve.y[best])}${band}`);
        }
        if (place === null) return;
        cross.setAttribute("x1", X(place)); cross.setAttribute("x2", X(place)); cross.setAttribute("visibility", "visible");
        showTip(event, [`${spec.xLabel || "iteration"} ${short(place)}`, ...lines]);
      });
      area.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); hideTip(); });
    }
    watch(holder, redraw);
  }
  function pieces(xs, ys, usableX, usableY, others = null) {
    const found = [];
    let piece = [];
    xs.forEach((x, j) => {
      if (usableX(x) && usableY(ys[j]) && (!others || usableY(others[j]))) piece.push(j);
      else if (piece.length) { found.push(piece); piece = []; }
    });
    if (piece.length) found.push(piece);
    return found;
  }
  // What is drawn to the width of its place waits for the whole page: a card is as wide as its neighbours let it.
  const watched = [];
  function watch(holder, redraw) {
    let width = -1;
    const again = () => { if (holder.clientWidth !== width) { width = holder.clientWidth; redraw(); } };
    watched.push(again);
    if ("ResizeObserver" in window) new ResizeObserver(() => requestAnimationFrame(again)).observe(holder);
  }

  // --- maps --------------------------------------------------------------------------------------------
  function heat(share, most) {
    const t = most > 0 ? Math.sqrt(Math.max(0, share) / most) * (HEAT.length - 1) : 0;
    const k = Math.min(HEAT.length - 2, Math.floor(t)), part = t - k;
    const mixed = HEAT[k].map((value, c) => Math.round(value + part * (HEAT[k + 1][c] - value)));
    return `rgb(${mixed.join(",")})`;
  }
  function heatMap(parent, grid, title, most) {
    const card = make(parent, "figure", { class: "card map", style: "margin:0" });
    make(card, "h3", {}, title);
    const size = 40, width = grid.columns * size, height = grid.rows * size;
    const svg = draw(card, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
    const walls = new Set(grid.walls);
    const cells = [], arrows = draw(svg, "g");
    for (let state = 0; state < grid.rows * grid.columns; state += 1) {
      const x = (state % grid.columns) * size, y = Math.floor(state / grid.columns) * size;
      const cell = draw(svg, "rect", { class: "cell", x: x + 0.5, y: y + 0.5, width: size - 1, height: size - 1, rx: 3, fill: "var(--wall)" });
      cells.push(cell);
      cell.addEventListener("pointermove", (event) => tellCell(event, state));
      cell.addEventListener("pointerleave", hideTip);
    }
    svg.append(arrows);
    for (const [letter, states] of Object.entries(grid.marks)) {
      for (const state of states) {
        const x = (state % grid.columns) * size, y = Math.floor(state / grid.columns) * size;
        // On a large grid a cell is small, and its letter must fill it to be read.
        const tall = grid.columns > 12 ? 26 : 14;
        draw(svg, "text", { class: "mark", x: x + size - 4, y: y + tall, "text-anchor": "end", style: `font-size:${tall}px`, "pointer-events": "none" }, letter);
      }
    }
    const scaleBar = make(card, "div", { class: "row heat" });
    make(scaleBar, "span", {}, "0");
    const stops = HEAT.map((_, k) => heat((k / (HEAT.length - 1)) ** 2, 1)).join(",");
    make(scaleBar, "i", { style: `background:linear-gradient(to right,${stops})` });
    make(scaleBar, "span", {}, `${short(most)} of the time`);
    let frame = null;
    function tellCell(event, state) {
      const lines = [`row ${Math.floor(state / grid.columns)}, column ${state % grid.columns} (state ${state})`];
      if (walls.has(state)) lines.push("wall");
      else {
        lines.push(`${short(frame.share[state])} of the (discounted) time`);
        frame.policy[state].forEach((p, a) => { if (p > 0.001) lines.push(`${grid.actions[a] || "action " + a}: ${short(p)}`); });
      }
      showTip(event, lines);
    }
    function show(next) {
      frame = next;
      arrows.textContent = "";
      cells.forEach((cell, state) => { if (!walls.has(state)) cell.setAttribute("fill", heat(frame.share[state], most)); });
      frame.share.forEach((share, state) => {
        if (walls.has(state) || share <= 1e-5 * most) return;
        const x = (state % grid.columns + 0.5) * size, y = (Math.floor(state / grid.columns) + 0.5) * size;
        const ink = Math.sqrt(share / most) > 0.72 ? "#10131a" : "#ffffff";
        frame.policy[state].forEach((p, a) => {
          const way = grid.directions[a];
          if (!way || p < 0.04) return;
          const reach = 0.44 * size * p, tx = x + way[0] * reach, ty = y + way[1] * reach;
          const head = Math.min(5, 2 + 4 * p), bx = tx - way[0] * head, by = ty - way[1] * head;
          draw(arrows, "path", { class: "arrow", d: `M${x} ${y}L${tx} ${ty}M${bx + way[1] * head * 0.7} ${by + way[0] * head * 0.7}L${tx} ${ty}L${bx - way[1] * head * 0.7} ${by - way[0] * head * 0.7}`,
            stroke: ink, "stroke-width": 1.7, fill: "none", "stroke-linecap": "round", "pointer-events": "none" });
        });
      });
    }
    return show;
  }
  function drawMap(parent, map) {
    parent.textContent = "";
    if (!map.grid) { drawStates(parent, map); return; }
    const frames = map.frames || [];
    const every = [map.final, ...map.targets, ...frames].flatMap((frame) => frame.share);
    const most = Math.max(...every);
    const controls = make(parent, "div", { class: "row" });
    const maps = make(parent, "div", { class: "maps" });
    const show = heatMap(maps, map.grid, frames.length ? "Where the policy spends its time" : "Where the final policy spends its time", most);
    show(map.final);
    for (const target of map.targets) heatMap(maps, map.grid, `The expert of “${target.name}”`, most)(target);
    if (!frames.length) { controls.remove(); return; }
    const play = make(controls, "button", { type: "button", class: "play" }, "Play");
    const slider = make(controls, "input", { type: "range", min: 0, max: frames.length, value: frames.length, step: 1, "aria-label": "iteration" });
    const label = make(controls, "output", { class: "iteration" });
    function go(k) {
      slider.value = k;
      show(k < frames.length ? frames[k] : map.final);
      label.textContent = k < frames.length ? `iteration ${frames[k].iteration.toLocaleString("en")}` : "the policy that is returned";
    }
    slider.addEventListener("input", () => go(Number(slider.value)));
    let timer = null;
    play.addEventListener("click", () => {
      if (timer) { clearInterval(timer); timer = null; play.textContent = "Play"; return; }
      play.textContent = "Stop";
      let k = Number(slider.value) >= frames.length ? 0 : Number(slider.value);
      timer = setInterval(() => {
        if (!slider.isConnected) { clearInterval(timer); return; }
        go(k);
        if (k >= frames.length) { clearInterval(timer); timer = null; play.textContent = "Play"; }
        k += 1;
      }, 180);
    });
    go(frames.length);
  }
  function drawStates(parent, map) {
    const card = make(parent, "figure", { class: "card", style: "margin:0" });
    const all = map.states.length === map.count ? "" : `, the ${map.states.length.toLocaleString("en")} most visited`;
    make(card, "h3", {}, `${map.count.toLocaleString("en")} states${all}`);
    const row = make(card, "div", { class: "row" });
    const search = make(row, "input", { type: "search", placeholder: "search states and actions", "aria-label": "search states" });
    const random = make(row, "button", { type: "button", class: "axis", "aria-pressed": "false" }, "only where it randomises");
    const found = make(row, "output", { class: "hint" });
    const holder = make(card, "div", { id: "states" });
    let shown = 50;
    function list() {
      const words = search.value.trim().toLowerCase(), only = random.getAttribute("aria-pressed") === "true";
      const hits = map.states.filter((s) => (!only || s.randomises) && `${s.state} ${s.action}`.toLowerCase().includes(words));
      found.textContent = `${hits.length.toLocaleString("en")} found`;
      holder.textContent = "";
      table(holder, ["state", "share of time", "action", ""], hits.slice(0, shown).map((s) => [s.state, short(s.share), s.action || "–",
        s.never ? "never visited: a fallback" : s.randomises ? "randomises" : ""]), [1]);
      if (hits.length > shown) {
        const more = make(holder, "button", { type: "button" }, `show ${Math.min(500, hits.length - shown)} more`);
        more.addEventListener("click", () => { shown += 500; list(); });
      }
    }
    search.addEventListener("input", () => { shown = 50; list(); });
    random.addEventListener("click", () => { random.setAttribute("aria-pressed", random.getAttribute("aria-pressed") !== "true"); list(); });
    list();
  }

  // --- proofs ------------------------------------------------------------------------------------------
  function drawProof(parent, proof) {
    const card = make(parent, "figure", { class: "card proof", style: "margin:0" });
    make(card, "h3", {}, proof.name);
    if (proof.infeasible) {
      make(card, "p", { class: "not" }, `Proven: no policy satisfies ${proof.conflict.join(", ")}${proof.conflict.length > 1 ? " together" : ""}; the smallest slack is at most ${proof.slack_bound}.`);
      return;
    }
    const maximise = proof.sense === "maximize";
    const best = maximise ? proof.upper : proof.lower, sure = maximise ? proof.lower : proof.upper;
    make(card, "p", {}, `Gap ${proof.gap}, ${proof.relative}. ` + (proof.repaired ? "The policy was repaired: mixed with one that is surely feasible." : ""));
    const holder = make(card, "div");
    watch(holder, () => {
      holder.textContent = "";
      const width = Math.max(260, holder.clientWidth || 430);
      const rows = proof.slack.length, height = 92;
      const svg = draw(holder, "svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `certificate of ${proof.name}` });
      const numbers = [proof.lower, proof.upper, proof.reached, proof.uniform].filter(known);
      const range = extent(numbers, false);
      if (range) {
        const X = scale(range[0], range[1], 12, width - 12, false), y = 46;
        draw(svg, "line", { x1: 6, x2: width - 6, y1: y, y2: y, stroke: "var(--line)", "stroke-width": 2 });
        if (known(proof.lower) && known(proof.upper)) {
          draw(svg, "rect", { class: "gap", x: X(proof.lower) - 2, y: y - 9, width: Math.max(4, X(proof.upper) - X(proof.lower) + 4), height: 18, rx: 4, fill: "var(--good)", opacity: 0.45 });
        }
        const side = (x) => (x > width * 0.66 ? "end" : x < width * 0.33 ? "start" : "middle");
        const mark = (value, text, row, colour) => {
          if (!known(value)) return;
          draw(svg, "line", { x1: X(value), x2: X(value), y1: y - 12, y2: y + 12, stroke: colour, "stroke-width": 2 });
          draw(svg, "text", { x: X(value), y: row, "text-anchor": side(X(value)) }, `${text} ${Number(value.toPrecision(7))}`);
        };
        mark(best, maximise ? "no policy gets above" : "no policy gets below", 14, "var(--good)");
        mark(sure, "surely reached", 28, "var(--good)");
        mark(proof.uniform, "uniform policy", 74, "var(--soft)");
        mark(proof.reached, "this policy", 88, "var(--c0)");
      }
      if (rows) make(holder, "p", { class: "slacks" }, "Slack per constraint, as a share of its budget");
      for (const entry of proof.slack) {
        const middle = width / 2;
        const value = known(entry.sure) ? entry.sure : entry.given;
        const share = known(value) ? value / (Math.abs(entry.budget || 0) || Math.abs(value) || 1) : -1;
        const reach = Math.max(-1, Math.min(1, share)) * (middle - 14);
        const holds = share >= -1e-6;
        const bar = draw(holder, "svg", { viewBox: `0 0 ${width} 20`, "aria-hidden": "true" });
        draw(bar, "rect", { class: "slack", x: Math.min(middle, middle + reach), y: 4, width: Math.max(2, Math.abs(reach)), height: 12, rx: 2, fill: holds ? "var(--good)" : "var(--bad)" });
        draw(bar, "line", { x1: middle, x2: middle, y1: 0, y2: 20, stroke: "var(--ink)" });
        const words = holds ? (share <= 1e-6 ? "used up" : "holds") : "violated";
        make(holder, "p", { class: "hint" }, `${entry.name}: ${words}, slack ${short(value)}, price ≤ ${short(entry.worth)}`);
      }
    });
    if (proof.assumes.length) make(card, "p", { class: "hint" }, `Rests on these promises: ${proof.assumes.join("; ")}.`);
  }

  // --- the page ----------------------------------------------------------------------------------------
  const header = make(root, "header");
  make(header, "h1", {}, data.title);
  const theme = make(header, "button", { type: "button", id: "theme", "aria-label": "light or dark" }, "Light / dark");
  theme.addEventListener("click", () => {
    const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  });
  make(root, "p", { class: "lead", id: "headline" }, data.headline.join(" "));
  const tiles = make(root, "div", { class: "tiles" });
  for (const tile of data.tiles) {
    const box = make(tiles, "div", { class: "tile" });
    make(box, "span", {}, tile.label); make(box, "b", {}, tile.value); make(box, "span", {}, tile.note);
  }

  const asked = section("The problem", "What was asked, and how the answer does. Slack is signed: at least zero where a constraint holds. A multiplier is what a unit of slack is worth: a budget that allows one unit more.");
  for (const problem of data.problems) {
    if (data.problems.length > 1) make(asked, "h3", {}, problem.title);
    const statement = make(asked, "p");
    make(statement, "code", {}, `${problem.sense} ${problem.utility}`);
    make(asked, "p", { class: "hint" }, problem.model);
    if (problem.answers.length === 1) {
      const [answer] = problem.answers, mean = answer.runs > 1 ? ", mean" : "";
      if (problem.constraints.length) table(asked, ["constraint", "requires", `value${mean}`, `slack${mean}`, `multiplier${mean}`],
        problem.constraints.map((c, k) => [c.name, c.requires, answer.constraints[k].value, answer.constraints[k].slack, answer.constraints[k].multiplier]), [2, 3, 4]);
    } else {
      if (problem.constraints.length) table(asked, ["constraint", "requires"], problem.constraints.map((c) => [c.name, c.requires]));
      const seeds = problem.answers.some((answer) => answer.runs > 1);
      table(asked, ["setting", ...(seeds ? ["runs"] : []), seeds ? "objective, mean over seeds" : "objective", ...problem.constraints.flatMap((c) => [`${c.name}: value`, "slack"])],
        problem.answers.map((answer) => [answer.label || "–", ...(seeds ? [String(answer.runs)] : []), answer.objective, ...answer.constraints.flatMap((c) => [c.value, c.slack])]),
        [...Array(2 + 2 * problem.constraints.length + (seeds ? 1 : 0)).keys()].slice(1)).parentElement.classList.add("answers");
    }
    for (const unit of problem.units) make(asked, "p", { class: "hint" }, unit);
    if (problem.signals.length) table(asked, ["signal", "sum", "per step"], problem.signals.map((s) => [s.name, s.total, s.step]), [1, 2]);
  }

  if (data.maps.length) {
    const part = section("Where the policy goes", data.maps[0].grid ? "Colour: share of the (discounted) time, on a square-root scale. Arrows: the policy, as long as the action is likely. S start, G goal, ! hazard." : "How often it is in each state, and what it does there.");
    part.id = "maps";
    if (data.maps.length > 1) {
      const choice = make(make(part, "div", { class: "row" }), "select", { id: "which", "aria-label": "run" });
      data.maps.forEach((map, k) => make(choice, "option", { value: k }, map.label));
      choice.addEventListener("change", () => drawMap(place, data.maps[Number(choice.value)]));
    }
    const place = make(part, "div");
    drawMap(place, data.maps[0]);
  }

  if (data.panels.length) {
    const part = section("How it went", "Click a name to hide its curve; point at a curve to read it. " + (data.computed ? "“Exact” is computed from the model, what" : "What") + " is “seen in episodes” is what the method itself had to go by.");
    const cards = make(part, "div", { class: "cards", id: "curves" });
    for (const panel of data.panels) chart(cards, panel);
  }

  if (data.proofs.length) {
    const part = section("What is proven", "The best any policy could do lies in the green interval: below what no policy exceeds, above what a policy surely reaches. Anybody can check it: cvxmdp check certificate.json problem.toml");
    const cards = make(part, "div", { class: "cards", id: "proofs" });
    for (const proof of data.proofs.slice(0, 24)) drawProof(cards, proof);
    if (data.proofs.length > 24) make(part, "p", { class: "hint" }, `and ${data.proofs.length - 24} more, in the table of runs.`);
  }

  if (data.frontiers.length) {
    const part = section("The budget frontier", "The best objective as a function of a budget. The band is proven: the truth lies in it at every budget. Its slope is what a unit of slack is worth.");
    const cards = make(part, "div", { class: "cards", id: "frontiers" });
    for (const frontier of data.frontiers) {
      const solved = frontier.points.filter((point) => known(point.low));
      const verticals = [];
      if (known(frontier.infeasible_until)) verticals.push({ x: frontier.infeasible_until, label: "infeasible before", colour: "var(--bad)" });
      if (known(frontier.free_from)) verticals.push({ x: frontier.free_from, label: "not binding", colour: "var(--soft)" });
      chart(cards, {
        title: `${frontier.objective}`, xLabel: `budget of ${frontier.constraint}`, verticals,
        curves: [
          { label: "at least", kind: "at least", group: 0, style: 0, x: frontier.x, y: frontier.low, low: frontier.low, high: frontier.high, runs: 1, whole: true },
          { label: "at most", kind: "at most", group: 0, style: 0, x: frontier.x, y: frontier.high, runs: 1 },
          { label: "solved", kind: "solved", group: 0, style: 0, x: solved.map((p) => p.x), y: solved.map((p) => p.low), dots: true, runs: 1 },
        ],
      });
      const card = make(cards, "div", { class: "card" });
      table(card, ["budget", "at least", "at most", `${short(frontier.step)} of slack is worth at most`],
        frontier.points.map((p) => [short(p.x), short(p.low), short(p.high), known(p.low) || known(p.high) ? short(p.price) : "infeasible"]), [0, 1, 2, 3]);
    }
  }

  for (const finding of data.findings) {
    const part = section(finding.title);
    part.className = "finding";
    for (const sentence of finding.sentences) make(part, "p", {}, sentence);
    if (finding.rows.length) table(part, finding.header, finding.rows);
  }

  const listed = section(data.runs.length > 1 ? "All runs" : "The run");
  table(listed, ["run", "status", "objective", "worst violation", "violated while learning", "proven gap", "how"],
    data.runs.map((run) => [run.run, run.status, run.objective, run.violation, run.learning, run.gap, run.how]), [2, 3, 4, 5]);

  const again = section("Settings, and how to run it again");
  const commands = [...new Set(data.settings.map((entry) => entry.rerun).filter(Boolean))];
  if (commands.length) make(again, "pre", {}, commands.join("\n"));
  const described = data.settings.filter((entry) => Object.keys(entry.settings).length).slice(0, 12);
  if (described.length) {
    const names = [...new Set(described.flatMap((entry) => Object.keys(entry.settings)))];
    table(again, ["setting", ...described.map((entry) => (described.length > 1 ? entry.label : "value"))],
      names.map((name) => [name, ...described.map((entry) => entry.settings[name] ?? "–")]));
  }
  const machine = Object.entries(data.environment);
  if (machine.length) {
    make(again, "h3", { style: "margin-top:1rem" }, "Made with");
    make(again, "p", { class: "hint" }, machine.map(([name, value]) => `${name} ${value}`).join(" · "));
  }
  make(root, "footer", {}, `Written by cvxmdp ${data.version}. This page is one file and needs no network.`);
  for (const again of watched) again();
  for (const again of watched) again(); // the page has grown: there may be a scroll bar now
  window.addEventListener("scroll", hideTip, { passive: true });
  document.documentElement.dataset.drawn = "yes";
})();
