// Live plots of a job: its telemetry over server-sent events, one small plot per series.
import { length } from "./times.js";
import uPlot from "./vendor/uplot.js";

const NAMES = { cpu: "CPU", memory: "Memory", power: "Power", device: "Device in use" };
const SECONDS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 4 * 3600, 8 * 3600, 24 * 3600, 7 * 86400];
const POWERS = Array.from({ length: 40 }, (_, power) => 2 ** (power + 10));
const plots = new Map();

export function startPlots() {
  const card = document.getElementById("plots");
  const stream = new EventSource(`${card.dataset.metrics}?follow=true`);
  stream.onmessage = (event) => take(card, JSON.parse(event.data));
  stream.addEventListener("end", () => stream.close());
  window.addEventListener("pagehide", () => stream.close());
  document.addEventListener("theme", () => redraw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
}

function take(card, told) {
  for (const series of told.series || []) {
    if (!series.points.length) continue;
    let plot = plots.get(series.name);
    if (!plot) plots.set(series.name, (plot = new Plot(card.querySelector(".plot-list"), series)));
    plot.add(series.points, told.reset);
  }
  card.hidden = plots.size === 0;
}

function redraw() {
  for (const plot of plots.values()) plot.make();
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Plot {
  constructor(list, series) {
    this.unit = series.unit;
    this.name = NAMES[series.name] || series.name.replace(/^reported\./, "");
    if (series.source === "estimated") this.name += " (estimated)";
    this.data = [[], []];
    this.box = document.createElement("div");
    this.box.className = "plot";
    const title = document.createElement("h3");
    this.now = document.createElement("span");
    title.append(this.name, this.now);
    this.place = document.createElement("div");
    this.box.append(title, this.place);
    list.append(this.box);
    new ResizeObserver(() => this.chart && this.chart.setSize(this.size())).observe(this.place);
  }

  size() {
    return { width: Math.max(200, this.place.clientWidth), height: 150 };
  }

  add(points, reset) {
    if (reset) this.data = [[], []];
    if (!this.data[0].length) this.start = points[0][0];
    for (const [moment, value] of points) {
      this.data[0].push(moment - this.start);
      this.data[1].push(value);
    }
    this.now.textContent = shown(this.data[1].at(-1), this.unit);
    this.place.setAttribute("role", "img");
    this.place.setAttribute("aria-label", `${this.name} over time, now ${this.now.textContent}`);
    if (this.chart) this.chart.setData(this.data);
    else requestAnimationFrame(() => this.chart || this.make());
  }

  make() {
    this.chart?.destroy();
    const dim = colour("--dim");
    const axis = { stroke: dim, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    this.chart = new uPlot({
      ...this.size(),
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      axes: [
        { ...axis, size: 28, space: 60, incrs: SECONDS, values: (_, values) => values.map(length) },
        { ...axis, size: 58, space: 34, ...(this.unit === "bytes" ? { incrs: POWERS } : {}), values: (_, values) => values.map((value) => shown(value, this.unit)) },
      ],
      scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.08 : 1] } },
      series: [{}, { stroke: colour("--accent"), width: 1.6, fill: `color-mix(in srgb, ${colour("--accent")} 14%, transparent)`, points: { show: this.data[0].length < 3 } }],
      hooks: { setCursor: [(chart) => {
        const value = chart.cursor.idx == null ? this.data[1].at(-1) : this.data[1][chart.cursor.idx];
        this.now.textContent = shown(value, this.unit);
      }] },
    }, this.data, this.place);
  }
}

function shown(value, unit) {
  if (value == null) return "";
  if (unit === "bytes") {
    const step = value >= 2 ** 30 ? [2 ** 30, "GiB"] : value >= 2 ** 20 ? [2 ** 20, "MiB"] : [1024, "KiB"];
    return `${+(value / step[0]).toPrecision(3)} ${step[1]}`;
  }
  if (unit === "fraction") return `${+(value * 100).toPrecision(3)} %`;
  return `${+value.toPrecision(3)}${{ watts: " W", cores: "" }[unit] ?? ""}`;
}
