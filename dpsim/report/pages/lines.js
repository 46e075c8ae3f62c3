// Lines and marks over a number, with bands; several measures to choose from.
KINDS.lines = {
  controls(box, spec, state, draw) {
    const first = spec.measures[0];
    Object.assign(state, { measure: 0, hidden: new Set(), logX: spec.x.log === true, logY: first.log === true });
    if (spec.measures.length > 1) {
      box.append(choice("show", spec.measures.map((m) => m.name), 0, (k) => {
        state.measure = k;
        state.logY = spec.measures[k].log === true;
        yLog.setAttribute("aria-pressed", String(state.logY));
        draw();
      }));
    }
    const yLog = toggle("log y", state.logY, (on) => { state.logY = on; draw(); });
    if (spec.x.log !== undefined) box.append(toggle("log x", state.logX, (on) => { state.logX = on; draw(); }));
    box.append(yLog);
    // of many bands one is drawn, for they could not be told apart
    const banded = spec.series.map((s, n) => n).filter((n) => spec.series[n].points.some((p) => p.y.some((v) => v && v[1] !== v[2])));
    state.band = banded.length > 2 ? banded[banded.length - 1] : undefined;
    if (state.band !== undefined) {
      box.append(choice("interval of", banded.map((n) => spec.series[n].name), banded.length - 1, (k) => { state.band = banded[k]; draw(); }));
    }
    const hollow = spec.hollow && spec.series.some((s) => s.points.some((p) => p.hollow));
    if (spec.series.length > 1 || spec.bandNote || hollow) {
      const entries = spec.series.map((s) => ({ name: s.name, swatch: () => KINDS.lines.swatch(s) }));
      const key = legend(entries, (k, on) => { state.hidden[on ? "delete" : "add"](k); draw(); });
      if (spec.bandNote) {
        key.append(html("span", {}, svg("svg", { width: 18, height: 12, "aria-hidden": "true" }, square(0, " band")()), spec.bandNote));
      }
      if (hollow) {
        key.append(html("span", {}, svg("svg", { width: 18, height: 12, "aria-hidden": "true" }, svg("circle", { cx: 9, cy: 6, r: 4, class: "hollow k0" })), spec.hollow));
      }
      state.holder.append(key);
    }
  },
  swatch(s) {
    const group = svg("g", {});
    if (s.style !== "marks") group.append(svg("line", { x1: 0, x2: 18, y1: 6, y2: 6, class: "line k" + s.colour + " " + (s.style || "") }));
    if (s.style === "marks") group.append(diamond(9, 6, s.colour));
    else if (s.style !== "guide") group.append(svg("circle", { cx: 9, cy: 6, r: 3.5, class: "dot f" + s.colour }));
    return group;
  },
  draw(plot, spec, state, draw) {
    const m = spec.measures[state.measure], k = state.measure;
    const series = spec.series.map((s, n) => ({ ...s, n, dots: s.points.map((p) => ({ ...p, at: p.y[k] })).filter((p) => p.at) }))
      .filter((s) => !state.hidden.has(s.n));
    const xs = series.flatMap((s) => s.dots.map((p) => p.x));
    const levels = (spec.levels || []).filter((l) => l.measure === undefined || l.measure === k);
    const ys = series.flatMap((s) => s.dots.flatMap((p) => p.at)).concat(levels.map((l) => l.y)).filter(Number.isFinite);
    if (!xs.length || !ys.length) { plot.append(html("p", {}, "Nothing is chosen to be shown.")); return; }
    const logX = state.logX && Math.min(...xs) > 0, logY = state.logY && Math.min(...ys) > 0;
    const w = plot.clientWidth, h = clamp(w * 0.66, 250, 380);
    const [x0, x1] = widen(Math.min(...xs), Math.max(...xs), logX, 0.04);
    let [y0, y1] = widen(Math.min(...ys), Math.max(...ys), logY, 0.06);
    if (!logY && Math.min(...ys) >= 0) y0 = 0;
    const percent = (v) => number(v * 100) + " %";
    const said = m.percent ? percent : number;
    const yTicks = (logY ? logTicks : linearTicks)(y0, y1, 7);
    const left = 26 + Math.max(...yTicks.map((v) => wide(said(v)))), right = w - 12, top = 24, bottom = h - 46;
    const X = scale(x0, x1, left, right, logX), Y = scale(y0, y1, bottom, top, logY);
    const pic = canvas(plot, w, h, `${m.label} by ${spec.x.label}; arrow keys walk through its points`);
    const clip = "clip-" + state.holder.dataset.figure;
    pic.append(svg("clipPath", { id: clip }, svg("rect", { x: left, y: top - 6, width: right - left + 6, height: bottom - top + 12 })));
    for (const v of yTicks) {
      pic.append(svg("line", { x1: left, x2: right, y1: Y(v), y2: Y(v), class: "grid" }), text(left - 6, Y(v) + 4, said(v), { class: "end" }));
    }
    let before = -1e9;
    const xTicks = spec.x.ticks || (logX ? logTicks : linearTicks)(x0, x1, Math.floor(w / 70)).map((v) => [v, number(v)]);
    for (const [v, said_] of xTicks) {
      const half = wide(said_) / 2 + 5;
      if (v < x0 || v > x1 || X(v) - half < before) continue;
      before = X(v) + half;
      pic.append(svg("line", { x1: X(v), x2: X(v), y1: bottom, y2: bottom + 4, class: "axis" }), text(X(v), bottom + 17, said_, { class: "middle" }));
    }
    pic.append(svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }),
      text((left + right) / 2, h - 6, spec.x.label, { class: "middle soft" }), text(2, 12, m.label, { class: "soft" }));
    for (const one of (spec.marks || []).filter((o) => o.x >= x0 && o.x <= x1)) {
      const late = X(one.x) > (left + right) / 2;
      pic.append(svg("line", { x1: X(one.x), x2: X(one.x), y1: top, y2: bottom, class: "mark" }),
        text(X(one.x) + (late ? -5 : 5), bottom - 8, cut(one.text, late ? X(one.x) - left : right - X(one.x)), { class: late ? "end" : "" }));
    }
    for (const one of levels) {
      // said at the end that is farther from the lines
      const off = (p) => (p ? Math.abs(Y(Math.max(p.at[0], logY ? y0 : p.at[0])) - Y(one.y)) : 1e9);
      const early = Math.min(...series.map((s) => off(s.dots[0]))) > Math.min(...series.map((s) => off(s.dots[s.dots.length - 1])));
      pic.append(svg("line", { x1: left, x2: right, y1: Y(one.y), y2: Y(one.y), class: "mark level" }),
        text(early ? left + 4 : right, Y(one.y) - 5, cut(one.text, right - left), { class: early ? "" : "end" }));
    }
    const all = [];
    const inside = svg("g", { "clip-path": `url(#${clip})` });
    pic.append(inside);
    for (const s of series) KINDS.lines.one(inside, s, X, Y, logY ? y0 : -1e300, all, state.band);
    KINDS.lines.walk(pic, all, state.tip, plot);
  },
  one(inside, s, X, Y, least, all, band) {
    const at = s.dots.map((p) => [X(p.x), Y(Math.max(p.at[0], least)), p]);
    const banded = s.dots.filter((p) => p.at.length > 1);
    if ((band === undefined || band === s.n) && banded.some((p) => p.at[1] !== p.at[2])) {
      const up = banded.map((p) => `${X(p.x)},${Y(Math.max(p.at[2], least))}`);
      const down = banded.map((p) => `${X(p.x)},${Y(Math.max(p.at[1], least))}`).reverse();
      if (banded.length > 1) inside.append(svg("polygon", { points: [...up, ...down].join(" "), class: "fill band f" + s.colour }));
      else inside.append(svg("line", { x1: X(banded[0].x), x2: X(banded[0].x), y1: Y(banded[0].at[1]), y2: Y(banded[0].at[2]), class: "line k" + s.colour }));
    }
    if (s.style !== "marks") inside.append(svg("polyline", { points: at.map(([x, y]) => `${x},${y}`).join(" "), class: "line k" + s.colour + " " + (s.style || "") }));
    if (s.style === "guide") return;
    for (const [x, y, p] of at) {
      const dot = !p.hollow && (p.change || (s.style === "marks" && s.dots.length < 200)) ? diamond(x, y, s.colour)
        : svg("circle", { cx: x, cy: y, r: s.dots.length > 200 ? 2.2 : 4, class: (p.hollow ? "hollow k" : "dot f") + s.colour });
      inside.append(dot);
      all.push({ x, y, dot, tip: p.tip, n: s.n });
    }
  },
  walk(pic, all, tip, plot) {
    let current = null;
    const go = (one) => {
      if (current) current.dot.classList.remove("lit");
      current = one;
      if (!one) { tip.hide(); return; }
      one.dot.classList.add("lit");
      const k = pic.getBoundingClientRect().width / pic.viewBox.baseVal.width;
      tip.show(one.tip, plot.offsetLeft + one.x * k, plot.offsetTop + one.y * k);
    };
    pic.addEventListener("pointermove", (event) => {
      const [x, y] = place(pic, event);
      let best = null, least = 60;
      for (const one of all) {
        const far = Math.hypot(one.x - x, (one.y - y) * 0.6);
        if (far < least) { least = far; best = one; }
      }
      go(best);
    });
    pic.addEventListener("pointerleave", () => go(null));
    pic.addEventListener("blur", () => go(null));
    pic.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], jump = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (event.key === "Escape") go(null);
      if (!step && !jump) return;
      event.preventDefault();
      if (!current) { go(all[0]); return; }
      if (step) { go(all[clamp(all.indexOf(current) + step, 0, all.length - 1)]); return; }
      const rows = [...new Set(all.map((a) => a.n))];
      const next = rows[clamp(rows.indexOf(current.n) + jump, 0, rows.length - 1)];
      go(all.filter((a) => a.n === next).sort((a, b) => Math.abs(a.x - current.x) - Math.abs(b.x - current.x))[0]);
    });
  },
};
function widen(low, high, log, share) {
  if (low === high) return log ? [low / 1.5, high * 1.5] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  if (log) { const f = (high / low) ** share; return [low / f, high * f]; }
  return [low - (high - low) * share, high + (high - low) * share];
}
const diamond = (x, y, colour) => svg("path", { d: `M${x},${y - 6}l5,6l-5,6l-5,-6z`, class: "dot f" + colour });
