"use strict";

// advisor/models/anatomy.py once more, for the page: the same formulas in the same order. Sizes in bytes.
const memoryModel = {
  activations(run, set) {
    let kept = (run.activations / run.now.batch) * set.batch;
    if (set.autocast) kept *= 1 - run.saved;
    if (set.every === null || kept <= 0) return kept;
    const each = kept / run.blocks;
    const checkpointed = run.blocks / set.every;
    return checkpointed * (each / run.layer_over_boundary) + (run.blocks - checkpointed + 1) * each;
  },

  parts(run, set) {
    const shards = (stage) => (set.stage >= stage ? set.ranks : 1);
    const updated = set.moments === null || run.now.moments === null
      ? run.states.optimizer
      : (run.states.optimizer * run.moments[set.moments]) / run.moments[run.now.moments];
    const units = set.stage === 3 && set.ranks > 1 ? run.gathered_units * run.unit : 0;
    return {
      params: run.states.parameters / shards(3),
      grads: run.states.gradients / shards(2),
      optim: updated / shards(1),
      gathered: units + (set.autocast ? run.cast_bytes * run.parameters : 0),
      activations: this.activations(run, set),
      rest: run.rest,
    };
  },

  total(parts) {
    return parts.params + parts.grads + parts.optim + parts.gathered + parts.activations + parts.rest;
  },

  largest(run, set) {
    const one = this.activations(run, { ...set, batch: 1 });
    if (one <= 0) return null;
    const fixed = this.total(this.parts(run, set)) - this.activations(run, set);
    return Math.max(0, Math.floor((run.safe - fixed) / one));
  },
};
