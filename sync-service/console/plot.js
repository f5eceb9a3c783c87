// Plots over time, drawn by uPlot.

import { $ } from './dom.js';

/** Maximum number of points of a plot: ten minutes. */
const POINTS_MAX = 600;
const HEIGHT = 160;

/** Plot with one or more lines, each with a label and the name of its color. */
export class Plot {
  constructor(id, lines, unit) {
    this.element = $(id);
    this.lines = lines;
    this.unit = unit;
    this.data = [[], ...lines.map(() => [])];
    this.plot = null;
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.element);
  }

  size() { return { width: Math.max(200, this.element.clientWidth), height: HEIGHT }; }

  add(at_s, values) {
    [at_s, ...values].forEach((value, line) => this.data[line].push(value));
    if (this.data[0].length > POINTS_MAX) for (const line of this.data) line.shift();
    if (this.plot) this.plot.setData(this.data); else this.draw();
  }

  /** Replaces the data. */
  show(data) {
    this.data = data;
    if (this.plot) this.plot.setData(data); else this.draw();
  }

  draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const line = { stroke: colour('--line'), width: 1 };
    const axis = { stroke: colour('--dim'), grid: line, ticks: { show: false }, font: '12px system-ui, sans-serif' };
    const unit = this.unit ? ` ${this.unit}` : '';
    this.plot?.destroy();
    this.plot = new uPlot({
      ...this.size(),
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      series: [{}, ...this.lines.map(({ label, colour: name }) => (
        { label, stroke: colour(name), width: 2, points: { show: false } }))],
      scales: { y: { range: (_plot, _min, max) => [0, Math.max(1, (max || 0) * 1.1)] } },
      axes: [
        { ...axis, size: 28, grid: { show: false }, values: (_plot, ticks) => ticks.map((tick) => new Date(tick * 1000).toTimeString().slice(0, 8)), space: 90 },
        { ...axis, size: 56, space: 40, values: (_plot, ticks) => ticks.map((tick) => `${tick.toLocaleString('en')}${unit}`) },
      ],
    }, this.data, this.element);
  }
}
