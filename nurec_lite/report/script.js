"use strict";
document.documentElement.classList.add("js");

// the wipe: the slider is the truth, a drag across the image moves it
for (const wipe of document.querySelectorAll(".wipe")) {
  const slider = wipe.querySelector("input"), pane = wipe.querySelector(".pane");
  const show = () => pane.style.setProperty("--at", slider.value + "%");
  const follow = (event) => {
    const box = pane.getBoundingClientRect();
    slider.value = 100 * (event.clientX - box.left) / box.width;
    show();
  };
  slider.hidden = false;
  slider.addEventListener("input", show);
  pane.addEventListener("dragstart", (event) => event.preventDefault());
  pane.addEventListener("pointerdown", (event) => { pane.setPointerCapture(event.pointerId); follow(event); });
  pane.addEventListener("pointermove", (event) => { if (event.buttons) follow(event); });
  show();
}

// values of a curve under the pointer
for (const svg of document.querySelectorAll("svg.hover")) {
  const points = [...svg.querySelectorAll(".curve")].flatMap((curve) =>
    [...curve.points].map((at) => ({ x: at.x, y: at.y, name: curve.dataset.name ? curve.dataset.name + ", " : "" })));
  const tip = document.createElement("div");
  const axis = (text) => {
    const [low, high, start, end] = text.split(" ").map(Number);
    return (place) => Number((low + (place - start) / (end - start) * (high - low)).toPrecision(4));
  };
  const x = axis(svg.dataset.x), y = axis(svg.dataset.y);
  tip.className = "tip";
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), outer = svg.parentNode.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const at = (event.clientX - box.left) / scale, height = (event.clientY - box.top) / scale;
    const apart = (point) => Math.abs(point.x - at) + 0.1 * Math.abs(point.y - height);
    const near = points.reduce((a, b) => apart(b) < apart(a) ? b : a);
    tip.textContent = `${near.name}${x(near.x)} ${svg.dataset.xUnit}: ${y(near.y)} ${svg.dataset.yUnit}`;
    tip.style.left = near.x * scale + "px";
    tip.style.top = box.top - outer.top + near.y * scale + "px";
    svg.parentNode.append(tip);
  });
  svg.addEventListener("pointerleave", () => tip.remove());
}
