// Order statistics of run times, and the ratio of two medians with an interval: the same as sparsetorch/latency/statistics.py, but
// for blocks of rounds drawn by another generator.

export function percentile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  const place = (sorted.length - 1) * share;
  const below = Math.floor(place);
  return sorted[below] + (place - below) * ((sorted[below + 1] ?? sorted[below]) - sorted[below]);
}

export const median = (values) => percentile(values, 0.5);

// Mulberry32: small, seeded, good enough to draw rounds.
function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// {value, low, high}: median of `reference` over median of `times`, which were measured in the same rounds; 95 % interval by
// circular block bootstrap.
export function ratio(reference, times, resamples = 1000) {
  const rounds = times.length;
  const length = Math.max(1, Math.round(Math.cbrt(rounds)));
  const random = generator(1);
  const drawn = [];
  for (let sample = 0; sample < resamples; sample++) {
    const first = [];
    const second = [];
    while (first.length < rounds) {
      const start = Math.floor(random() * rounds);
      for (let step = 0; step < length && first.length < rounds; step++) {
        first.push(reference[(start + step) % rounds]);
        second.push(times[(start + step) % rounds]);
      }
    }
    drawn.push(median(first) / median(second));
  }
  return {value: median(reference) / median(times), low: percentile(drawn, 0.025), high: percentile(drawn, 0.975)};
}

export function inWords({value, low, high}) {
  if (low <= 1 && high >= 1) return `no difference measured (${low.toFixed(2)} to ${high.toFixed(2)})`;
  if (value >= 1) return `${value.toFixed(2)} times as fast (${low.toFixed(2)} to ${high.toFixed(2)})`;
  return `${(1 / value).toFixed(2)} times as slow (${(1 / high).toFixed(2)} to ${(1 / low).toFixed(2)})`;
}

// Largest |difference| over all outputs, relative to the largest |value|; infinite where they do not match.
export function largestDifference(first, second) {
  if (first.length !== second.length) return Infinity;
  let worst = 0;
  for (const [at, values] of first.entries()) {
    const other = second[at];
    if (values.length !== other.length) return Infinity;
    let difference = 0;
    let largest = 0;
    for (let i = 0; i < values.length; i++) {
      if (!Number.isFinite(values[i]) || !Number.isFinite(other[i])) return Infinity;
      difference = Math.max(difference, Math.abs(values[i] - other[i]));
      largest = Math.max(largest, Math.abs(values[i]));
    }
    worst = Math.max(worst, difference === 0 ? 0 : difference / (largest || 1));
  }
  return worst;
}
