"use strict";

// Memory at other settings, from the parts that advisor/models/anatomy.py computes. Sizes in bytes.
const memoryModel = {
  sample(run, set) {
    return run.samples[set.every] * (set.autocast ? 1 - run.saved : 1);
  },

  parts(run, set) {
    const shards = (stage) => (set.stage >= stage ? set.ranks : 1);
    return {
      params: run.parameters / shards(3),
      grads: run.gradients / shards(2),
      optim: run.optimizers[set.moments] / shards(1),
      gathered: (set.stage === 3 && set.ranks > 1 ? run.units : 0) + (set.autocast ? run.cast : 0),
      activations: this.sample(run, set) * set.batch,
      rest: run.rest,
    };
  },

  total(parts) {
    return Object.values(parts).reduce((sum, part) => sum + part, 0);
  },

  largest(run, set) {
    const one = this.sample(run, set);
    if (one <= 0) return null;
    const { activations, ...fixed } = this.parts(run, set);
    return Math.max(0, Math.floor((run.safe - this.total(fixed)) / one));
  },
};
