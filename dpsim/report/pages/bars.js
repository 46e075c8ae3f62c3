// Stacked bars, a row each, and ranges around a base.
function rowsOf(plot, spec, size) {
  const w = plot.clientWidth;
  const gutter = Math.min(Math.max(...spec.rows.map((r) => wide(r.name))) + 12, w * 0.34);
  const above = w < 430, tall = above ? 44 : 28;
  const left = above ? 2 : gutter;
  const said = Math.min(Math.max(...spec.rows.map((r) => wide(r.said || ""))) + 14, w * (above ? 0.45 : 0.3));
  const h = spec.rows.length * tall + 40;
  const pic = canvas(plot, w, h, spec.title + (spec.name ? ", " + spec.name : "") + "; arrow keys walk through its bars");
  const rows = spec.rows.map((row, k) => {
    const y = k * tall + (above ? 18 : 4), most = above ? w : gutter - 8;
    pic.append(text(above ? 2 : left - 8, above ? y - 5 : y + 15, cut(row.name, most), { class: above ? "" : "end" }));
    return { row, y, middle: y + 10 };
  });
  return { pic, rows, left, right: w - said, h, w };
}
function axisOf(pic, at, X, low, high, unit, percent) {
  for (const v of linearTicks(low, high, Math.max(2, Math.floor((at.right - at.left) / 80)))) {
    pic.prepend(svg("line", { x1: X(v), x2: X(v), y1: 0, y2: at.h - 36, class: "grid" }));
    const said = percent ? number(v * 100) + " %" : number(v), half = wide(said) / 2;
    pic.append(text(clamp(X(v), half, at.w - half), at.h - 22, said, { class: "middle" }));
  }
  const half = Math.min(wide(unit), at.w) / 2;
  pic.append(text(clamp((at.left + at.right) / 2, half, at.w - half), at.h - 5, cut(unit, at.w), { class: "middle soft" }));
}
function walkRows(pic, items, tip, plot) {
  let current = -1;
  const go = (k) => {
    if (items[current]) items[current].shape.classList.remove("lit");
    current = k;
    const one = items[k];
    if (!one) { tip.hide(); return; }
    one.shape.classList.add("lit");
    const f = pic.getBoundingClientRect().width / pic.viewBox.baseVal.width;
    tip.show(one.tip, plot.offsetLeft + one.x * f, plot.offsetTop + one.y * f);
  };
  items.forEach((one, k) => one.shape.addEventListener("pointerenter", () => go(k)));
  pic.addEventListener("pointerleave", () => go(-1));
  pic.addEventListener("blur", () => go(-1));
  pic.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") go(-1);
    if (!step || !items.length) return;
    event.preventDefault();
    go(clamp(current + step, 0, items.length - 1));
  });
}
KINDS.bars = {
  controls(box, spec, state, draw) {
    state.share = false;
    if (spec.share) box.append(toggle(spec.share, false, (on) => { state.share = on; draw(); }));
    if (spec.parts.length > 1) {
      state.holder.append(legend(spec.parts.map((p) => ({ name: p.name, swatch: square(p.colour) }))));
    }
  },
  draw(plot, spec, state) {
    const at = rowsOf(plot, spec);
    const whole = (row) => row.values.reduce((a, b) => a + b, 0);
    const most = state.share ? 1 : Math.max(...spec.rows.flatMap((r) => [whole(r), r.high || 0])) || 1;
    const X = scale(0, most, at.left, at.right, false);
    const items = [];
    for (const { row, y, middle } of at.rows) {
      const f = state.share ? 1 / (whole(row) || 1) : 1;
      let x = 0;
      row.values.forEach((value, k) => {
        if (value <= 0) return;
        const shape = svg("rect", { x: X(x * f), y, width: Math.max(0.5, X((x + value) * f) - X(x * f)), height: 20, class: "fill f" + (row.colour === undefined ? spec.parts[k].colour : row.colour) });
        at.pic.append(shape);
        items.push({ shape, x: X((x + value / 2) * f), y, tip: [[row.name], [spec.parts[k].name, row.texts[k]], ...(row.tip || [])] });
        x += value;
      });
      let end = X(x * f);
      if (!state.share && row.high && row.high !== row.low) {
        at.pic.append(svg("path", { d: `M${X(row.low)},${middle}H${X(row.high)}M${X(row.low)},${middle - 5}v10M${X(row.high)},${middle - 5}v10`, class: "whisker" }));
        end = Math.max(end, X(row.high));
      }
      at.pic.append(text(end + 7, middle + 4, cut(row.said || "", at.w - end - 8)));
    }
    axisOf(at.pic, at, X, 0, most, state.share ? "share" : spec.unit, state.share);
    walkRows(at.pic, items, state.tip, plot);
  },
};
KINDS.ranges = {
  controls() {},
  draw(plot, spec, state) {
    if (!spec.rows.length) { plot.append(html("p", {}, spec.empty || "There is nothing to show.")); return; }
    const at = rowsOf(plot, spec);
    const ends = spec.rows.flatMap((r) => [r.low, r.high]).concat(spec.base);
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const X = scale(low, high > low ? high : low + 1, at.left + 2, at.right, false);
    const items = at.rows.map(({ row, y, middle }) => {
      const shape = svg("rect", { x: X(row.low), y, width: Math.max(2, X(row.high) - X(row.low)), height: 20, class: "fill f" + (row.colour || 0) });
      at.pic.append(shape, text(X(row.high) + 7, middle + 4, cut(row.said || "", at.w - X(row.high) - 8)));
      return { shape, x: (X(row.low) + X(row.high)) / 2, y, tip: [[row.name], ...row.tip] };
    });
    axisOf(at.pic, at, X, low, high, spec.unit, spec.percent);
    at.pic.append(svg("line", { x1: X(spec.base), x2: X(spec.base), y1: 0, y2: at.h - 36, class: "axis" }));
    walkRows(at.pic, items, state.tip, plot);
  },
};
