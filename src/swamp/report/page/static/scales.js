// Numbers as text, ticks of axes, scales.

const fixed = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits).replace(/^-(?=[0.]+$)/, ""));
const compact = (value, digits = 3) => (value === 0 ? "0" : Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(Math.max(digits - 2, 1)) : String(+value.toPrecision(digits)));

// Ticks in as many digits as tell them apart; on a linear axis all have equally many behind the point.
function tickTexts(ticks, linear) {
  const step = Math.min(...ticks.slice(1).map((tick, index) => Math.abs(tick - ticks[index])));
  let digits = 3;
  while (digits < 12 && ticks.some((tick) => Math.abs(+compact(tick, digits) - tick) > step / 100)) digits++;
  const texts = ticks.map((tick) => compact(tick, digits));
  if (!linear || texts.some((text) => text.includes("e"))) return texts;
  const behind = Math.max(...texts.map((text) => (text.split(".")[1] || "").length));
  return ticks.map((tick) => (tick === 0 ? "0" : fixed(tick, behind)));
}

// Round numbers, about `count` of them and at least three, no closer than `least`.
function niceTicks(low, high, count, least = 0) {
  const rough = Math.max((high - low) / Math.max(count, 1), least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [0.5, 1, 2, 2.5, 5, 10].map((factor) => factor * power);
  const fitting = (step) => Math.floor(high / step + 1e-9) - Math.ceil(low / step - 1e-9) + 1;
  let at = steps.findIndex((step) => step >= rough * 0.999);
  while (at > 0 && fitting(steps[at]) < 3 && steps[at - 1] >= least) at--;
  const ticks = [];
  for (let index = Math.ceil(low / steps[at] - 1e-9); index * steps[at] <= high + steps[at] * 1e-9; index++) ticks.push(+(index * steps[at]).toPrecision(12));
  return ticks;
}

const wholeTicks = (low, high, count) => niceTicks(low, high, count, 1).filter(Number.isInteger);

function logTicks(low, high, count) {
  for (const digits of [[1], [1, 3], [1, 2, 5]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
      for (const digit of digits) {
        const tick = +(digit * 10 ** power).toPrecision(6);
        if (tick >= low * 0.9999 && tick <= high * 1.0001) ticks.push(tick);
      }
    if (ticks.length >= Math.min(3, count)) return ticks;
  }
  return niceTicks(low, high, count).filter((tick) => tick > 0);
}

const sparsityOf = (remaining) => +(100 - remaining).toFixed(9);

// Remaining weights of which people know the sparsity.
function sparsityTicks(low, high, log, count) {
  const nice = () => niceTicks(100 - high, 100 - low, count).filter((sparsity) => sparsity >= 0).map((sparsity) => 100 - sparsity);
  if (!log) return nice();
  const round = [100, 80, 50, 30, 20, 15, 10, 7, 5, 3, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01].filter((v) => v >= low * 0.999 && v <= high * 1.001);
  return round.length >= 4 ? round : nice();
}

function makeScale([low, high], [from, to], log) {
  const t = log ? Math.log : (v) => v;
  const back = log ? Math.exp : (v) => v;
  const span = t(high) - t(low) || 1;
  const scale = (value) => from + ((t(value) - t(low)) / span) * (to - from);
  scale.invert = (pixel) => back(t(low) + ((pixel - from) / (to - from)) * span);
  return scale;
}
