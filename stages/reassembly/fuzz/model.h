/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What core.h promises, in the plainest way: a bit for each byte that is there, and a list of the fragments. It shares nothing
 * with the core but the numbers of packets.
 */
#ifndef TARN_REASSEMBLY_FUZZ_MODEL_H
#define TARN_REASSEMBLY_FUZZ_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_BYTES 65535
#define MODEL_MOST 1000

/* A trap that no build leaves out; its line is in libFuzzer's stack trace. */
#define EXPECT(condition) do { if (!(condition)) __builtin_trap(); } while (0)

enum model_fate { MODEL_TAKEN, MODEL_DUPLICATE, MODEL_DISCARDED };

struct model_fragment {
	uint32_t tag, offset, length;
	bool more;
};

struct model {
	struct model_fragment fragment[MODEL_MOST];
	uint64_t byte[(MODEL_BYTES + 64) / 64];
	uint16_t at[8192];	/* for each offset / 8: 1 + the fragment that starts there, or 0 */
	uint32_t count, bytes;
	uint32_t top;		/* the highest end of any */
	uint32_t end, last;	/* of the one without a successor: where it ends and where it starts */
	bool has_end;
};

/* The bits of bytes [from, to) in one word. */
static uint64_t model_bits(uint32_t word, uint32_t from, uint32_t to)
{
	uint32_t low = from > word * 64 ? from - word * 64 : 0, high = to < word * 64 + 64 ? to - word * 64 : 64;

	return (high == 64 ? ~0ULL : (1ULL << high) - 1) & ~((1ULL << low) - 1);
}

static void model_empty(struct model *model)
{
	uint32_t i, word;

	for (i = 0; i < model->count; i++) {
		const struct model_fragment *one = &model->fragment[i];

		for (word = one->offset / 64; word * 64 < one->offset + one->length; word++)
			model->byte[word] = 0;
		model->at[one->offset / 8] = 0;
	}
	model->count = model->bytes = model->top = model->end = model->last = 0;
	model->has_end = false;
}

static bool model_starts(const struct model *model, uint32_t offset)
{
	return model->at[offset / 8];
}

static bool model_has(const struct model *model, uint32_t offset, uint32_t length, bool more)
{
	uint32_t index = model->at[offset / 8];
	const struct model_fragment *one = index ? &model->fragment[index - 1] : NULL;

	return one && one->length == length && one->more == more;
}

static bool model_overlaps(const struct model *model, uint32_t offset, uint32_t length)
{
	uint32_t end = offset + length, word;

	if (end > MODEL_BYTES)
		end = MODEL_BYTES;
	for (word = offset / 64; word * 64 < end; word++)
		if (model->byte[word] & model_bits(word, offset, end))
			return true;
	return false;
}

static bool model_is_bad_length(uint32_t length, bool more)
{
	return !length || (more && length % 8);
}

/* Too long, a second end, or bytes behind the end. */
static bool model_is_bad_end(const struct model *model, uint32_t offset, uint32_t length, bool more)
{
	uint32_t end = offset + length;

	return end > MODEL_BYTES || (model->has_end && (more ? end > model->end : end != model->end)) ||
	       (!more && end < model->top);
}

static enum model_fate model_fate(const struct model *model, uint32_t offset, uint32_t length, bool more)
{
	if (model_is_bad_length(length, more))
		return MODEL_DISCARDED;
	if (model_has(model, offset, length, more))
		return MODEL_DUPLICATE;
	if (model_is_bad_end(model, offset, length, more) || model_overlaps(model, offset, length))
		return MODEL_DISCARDED;
	return MODEL_TAKEN;
}

static void model_add(struct model *model, uint32_t tag, uint32_t offset, uint32_t length, bool more)
{
	uint32_t word, end = offset + length;

	model->fragment[model->count++] = (struct model_fragment){ tag, offset, length, more };
	model->at[offset / 8] = model->count;
	for (word = offset / 64; word * 64 < end; word++)
		model->byte[word] |= model_bits(word, offset, end);
	model->bytes += length;
	if (end > model->top)
		model->top = end;
	if (!more) {
		model->has_end = true;
		model->end = end;
		model->last = offset;
	}
}

static bool model_is_whole(const struct model *model)
{
	return model->has_end && model->bytes == model->end;
}

/* Whether the model has this fragment; tags say which one it is, so a second look at one place finds a repetition, too. */
static bool model_is(const struct model *model, uint32_t tag, uint32_t offset, uint32_t length)
{
	uint32_t index = model->at[offset / 8];

	return index && model->fragment[index - 1].tag == tag && model->fragment[index - 1].offset == offset &&
	       model->fragment[index - 1].length == length;
}

#endif
