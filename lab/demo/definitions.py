"""What every number in results.json means."""

DEFINITIONS = {
    "momentum, learning_rate": "of the row's optimizer; AdamW has betas instead of a momentum, "
    "and null here. The rate is that of the first step. Rows whose "
    "codec sends most of a gradient in later steps have no momentum and a higher rate, because "
    "they diverge with momentum",
    "accuracy": "share of all test images classified correctly after the last step, 0 ... 1",
    "steps": "training steps; in each, every rank takes one batch",
    "ms_per_step": "wall-clock milliseconds of a step, from taking the batch to the updated "
    "parameters: median over the steps of a rank, then median over the ranks",
    "accuracy_range, ms_per_step_range": "smallest and largest of the row's trainings, which "
    "differ only in the seed; every other number of a row is their median, and detail.repeats "
    "lists them one by one",
    "compute_ms": "milliseconds of a step without an exchange (batch, forward, backward): median "
    "of a few steps before training, on all ranks at once",
    "encode_ms, exchange_ms, decode_ms": "milliseconds of a step that the exchange spent encoding, "
    "waiting for the link and other ranks, and decoding; medians like ms_per_step. They overlap "
    "with the computation. For plain DDP exchange_ms is the time during which any of its buckets "
    "was in flight",
    "wire_mb_per_rank": "megabytes (10^6 bytes) that a rank sent in a whole training, counting "
    "every copy, headers and uncompressed tensors; mean over the ranks. For plain DDP "
    "calculated: 2 (N-1)/N x 4 bytes x values x steps",
    "times_smaller": "megabytes that our fp32 sent per rank / the row's, whatever their patterns; "
    "if fp32 did not run, 2 (N-1)/N x 4 bytes x values x steps takes its place",
    "bits_per_value": "what an encoded tensor takes for each value and training step, counting "
    "headers and uncompressed tensors: 8 x bytes sent / (copies x values x steps), where a rank "
    "sends 2 (N-1)/N copies of a tensor by direct and ring, and N-1 by gather",
    "times_faster": "ms_per_step of plain DDP / the row's; if that did not run, of our fp32. On a "
    "busy machine this and all milliseconds are null, and detail.repeats has what was measured",
    "bit_equal": "in every training all ranks ended with the same parameters, bit for bit, and "
    "applied the same means in every step",
    "failed": "null, or why the row has no numbers: one of its trainings failed",
}

ROW_KEYS = ("method", *(key for keys in DEFINITIONS for key in keys.split(", ")))
