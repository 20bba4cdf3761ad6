// Keeps the totals of the last minutes, and tells what happened between two of them.

export const STEP = 5; // seconds a bar
export const BARS = 60;
const KEPT = STEP * BARS + 1;

export const LOOKUPS = ["key", "exact", "embed", "search", "verify"];
export const STAGES = [...LOOKUPS, "upstream"];

export class Samples {
  constructor() {
    this.all = [];
  }

  // Totals that went back are of a gateway that was started anew.
  add(feed) {
    const last = this.all.at(-1);
    if (last && (feed.requests < last.requests || feed.now < last.now)) this.all = [];
    this.all.push(feed);
    while (this.all.length > 2 && feed.now - this.all[0].now > KEPT) this.all.shift();
  }

  get last() {
    return this.all.at(-1);
  }

  // What happened in the last minutes; all since the start of the gateway where that was nothing.
  recent() {
    const [first, last] = [this.all[0], this.last];
    const lately = last.requests > first.requests;
    return { feed: lately ? between(first, last) : last, seconds: lately ? last.now - first.now : null };
  }

  // Requests a second, over the last ten seconds.
  rate() {
    const last = this.last;
    const before = this.all.find((one) => last.now - one.now <= 10.5) ?? last;
    return last.now > before.now ? (last.requests - before.requests) / (last.now - before.now) : 0;
  }

  // For each bar, oldest first, the counts by kind; bars stand at multiples of STEP, so that they do not jitter.
  bars() {
    const end = Math.floor(this.last.now / STEP);
    const bars = Array.from({ length: BARS }, () => ({}));
    for (let at = 1; at < this.all.length; at++) {
      const bar = BARS - 1 - (end - Math.floor(this.all[at].now / STEP));
      if (bar < 0) continue;
      const [old, young] = [kinds(this.all[at - 1]), kinds(this.all[at])];
      for (const kind of KINDS) bars[bar][kind] = (bars[bar][kind] ?? 0) + young[kind] - old[kind];
    }
    return bars;
  }
}

export const KINDS = ["exact", "semantic", "stale", "miss", "bypass"];

export function kinds(feed) {
  const { hits_by_tier: tiers, outcomes } = feed;
  return {
    exact: tiers.exact ?? 0,
    semantic: tiers.semantic ?? 0,
    stale: outcomes.stale ?? 0,
    miss: outcomes.miss ?? 0,
    bypass: outcomes.bypass ?? 0,
  };
}

function between(first, last) {
  return {
    ...last,
    requests: last.requests - first.requests,
    outcomes: minus(last.outcomes, first.outcomes),
    hits_by_tier: minus(last.hits_by_tier, first.hits_by_tier),
    unanswered: minus(last.unanswered, first.unanswered),
    stages: minusTimes(last.stages, first.stages),
    upstreams: minusTimes(last.upstreams, first.upstreams),
  };
}

function minus(last, first) {
  return Object.fromEntries(Object.entries(last).map(([name, n]) => [name, n - (first[name] ?? 0)]));
}

function minusTimes(last, first) {
  const made = {};
  for (const [name, one] of Object.entries(last)) {
    const old = first[name];
    made[name] = old
      ? { sum: one.sum - old.sum, counts: one.counts.map((n, at) => n - old.counts[at]) }
      : one;
  }
  return made;
}

export const total = (histogram) => histogram.counts.reduce((a, b) => a + b, 0);

// The upper bound, in seconds, of the bucket that holds the quantile; null without data.
export function quantile(histogram, q, buckets) {
  const all = total(histogram);
  if (!all) return null;
  let below = 0;
  for (let at = 0; at < histogram.counts.length; at++) {
    below += histogram.counts[at];
    if (below >= q * all) return buckets[at] ?? Infinity;
  }
  return null;
}

// Where the time of an average request goes.
export function waterfall({ feed }) {
  let offset = 0;
  const rows = [];
  for (const name of STAGES) {
    const histogram = feed.stages[name];
    const times = histogram ? total(histogram) : 0;
    if (!times || !feed.requests) continue;
    const mean = Math.max(0, histogram.sum) / feed.requests;
    const [p50, p99] = [0.5, 0.99].map((q) => quantile(histogram, q, feed.buckets));
    rows.push({ name, mean, offset, times, p50, p99 });
    offset += mean;
  }
  for (const row of rows) row.share = offset ? row.mean / offset : 0;
  return { rows, total: offset };
}
