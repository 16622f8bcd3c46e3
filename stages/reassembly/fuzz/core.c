// SPDX-License-Identifier: GPL-2.0
/*
 * The core under libFuzzer, beside a model that is exact to the byte: a bit for each byte of the datagram, and no idea of slots,
 * chunks or units. `scripts/fuzz-reassembly` builds and runs it.
 *
 * An input is a program of a few bytes a step, see step(). The first byte says whether allocations fail, and from which one on.
 * After a datagram was completed or discarded, the rest of the input is the next one's.
 *
 * Only the core counts for coverage: the model's own branches would keep inputs that teach nothing.
 */
#include <stdio.h>
#include <stdlib.h>

static void *counted_calloc(size_t number, size_t size);
static void counted_free(void *pointer);

#define calloc counted_calloc
#define free counted_free
#include "../kmod/core.c"
#undef calloc
#undef free

#pragma clang attribute push(__attribute__((no_sanitize("coverage"))), apply_to = function)

#include "model.h"

/* Fragments of one input: what is above only takes time. */
#define MOST 1000

long plain_allocations_left = -1;

/* What the core has allocated and not freed, by each allocation's own size. */
static size_t live;

struct allocation {
	size_t size;
	size_t unused;		/* keeps what follows aligned */
};

static void *counted_calloc(size_t number, size_t size)
{
	struct allocation *allocation = calloc(1, sizeof(*allocation) + number * size);

	EXPECT(allocation);
	allocation->size = number * size;
	live += allocation->size;
	return allocation + 1;
}

static void counted_free(void *pointer)
{
	struct allocation *allocation = (struct allocation *)pointer - 1;

	live -= allocation->size;
	free(allocation);
}

static struct core_packet packets[MOST];

struct run {
	struct core core;
	struct model model;
	u32 given;		/* packets, of this input */
	u32 size;		/* bytes of a step's fragments */
	u32 at;			/* where the last one ended */
	bool is_short;		/* allocations fail */
};

/* What is left of a datagram: nothing. */
static void forget(struct run *run)
{
	EXPECT(!run->core.memory && !live);
	model_empty(&run->model);
	run->at = 0;
}

static void begin(struct run *run)
{
	memset(&run->core, 0, sizeof(run->core));
	core_init(&run->core);
	forget(run);
}

/* What the core gives back is what the model has, each once. */
static void expect_all(const struct model *model, struct core_packet *list)
{
	u32 found = 0;

	for (; list; list = list->next, found++) {
		EXPECT(found < model->count);
		EXPECT(model_is(model, list->tag, piece_of(list)->offset, piece_of(list)->length));
	}
	EXPECT(found == model->count);
}

/* The core is empty after that, and takes the next datagram as it is. */
static void discard(struct run *run)
{
	expect_all(&run->model, core_take(&run->core));
	forget(run);
}

/* In order, without a gap, to the end. */
static void complete(struct run *run, struct core_packet *packet)
{
	struct core_packet *before, *previous = NULL, *list, *one;
	u32 end = 0;

	/* A datagram of one fragment is none, see core_link(). */
	if (run->model.count == 1) {
		discard(run);
		return;
	}
	EXPECT(core_first(&run->core) && piece_of(core_first(&run->core))->offset == 0);
	list = core_link(&run->core, packet, &before);
	EXPECT(!run->core.memory && !live);
	for (one = list; one; previous = one, one = one->next) {
		EXPECT(piece_of(one)->offset == end);
		end += piece_of(one)->length;
		if (one == packet)
			EXPECT(before == previous);
	}
	EXPECT(end == run->model.end);
	expect_all(&run->model, list);
	begin(run);
}

/* A verdict against a fragment must be true, whichever of several the core has found first. */
static void expect_reason(const struct run *run, enum core_verdict verdict, u32 offset, u32 length, bool more)
{
	const struct model *model = &run->model;

	switch (verdict) {
	case CORE_OVERLAP:
		EXPECT(model_overlaps(model, offset, length) && !model_has(model, offset, length, more));
		break;
	case CORE_BAD_END:
		EXPECT(model_is_bad_end(model, offset, length, more));
		break;
	case CORE_BAD_LENGTH:
		EXPECT(model_is_bad_length(length, more));
		break;
	default:
		EXPECT(verdict == CORE_NO_MEMORY && run->is_short && !plain_allocations_left);
	}
}

static void expect_first(const struct run *run)
{
	struct core_packet *first = core_first(&run->core);

	/* One without a successor at 0 is no fragment: the core may have it without a slot. */
	if (run->model.has_end && run->model.last == 0)
		return;
	EXPECT(!first == !model_starts(&run->model, 0));
	EXPECT(!first || piece_of(first)->offset == 0);
}

static void insert(struct run *run, u32 offset, u32 length, bool more)
{
	enum model_fate fate = model_fate(&run->model, offset, length, more);
	struct core_packet *packet;
	enum core_verdict verdict;

	if (run->given == MOST)
		return;
	packet = &packets[run->given];
	packet->tag = run->given++;
	verdict = core_insert(&run->core, packet, offset, length, more);
	EXPECT(run->core.memory == live);
	if (verdict > CORE_DUPLICATE) {
		expect_reason(run, verdict, offset, length, more);
		EXPECT(verdict == CORE_NO_MEMORY || fate == MODEL_DISCARDED);
		discard(run);
		return;
	}
	EXPECT((verdict == CORE_DUPLICATE) == (fate == MODEL_DUPLICATE) && fate != MODEL_DISCARDED);
	if (fate == MODEL_DUPLICATE)
		return;
	model_add(&run->model, packet->tag, offset, length, more);
	EXPECT((verdict == CORE_WHOLE) == model_is_whole(&run->model));
	if (verdict == CORE_WHOLE)
		complete(run, packet);
	else
		run->at = (offset + length + 7) / 8 * 8 % 65536;
}

struct input {
	const u8 *next;
	const u8 *end;
};

static u32 byte(struct input *input)
{
	return input->next < input->end ? *input->next++ : 0;
}

static u32 word(struct input *input)
{
	u32 low = byte(input);

	return low | byte(input) << 8;
}

/* `number` fragments of one size from index `first` on, every `stride`-th, forwards or backwards. */
static void insert_row(struct run *run, u32 first, u32 number, u32 stride, bool is_backwards)
{
	u32 i;

	for (i = 0; i < number; i++) {
		u32 index = first + (is_backwards ? number - 1 - i : i) * stride;

		if (index * run->size <= 65528)
			insert(run, index * run->size, run->size, true);
	}
}

/* One step: the lower 3 bits say what it is, the others are its options. */
static void step(struct run *run, struct input *input)
{
	u32 what = byte(input), first, offset, length;

	switch (what & 7) {
	case 0:	/* anything */
		offset = word(input) % 8192 * 8;
		length = word(input);
		insert(run, offset, length, what & 8);
		break;
	case 1:	/* anything small */
		offset = byte(input) * 8;
		length = byte(input);
		insert(run, offset, what & 16 ? length : length * 8, what & 8);
		break;
	case 2:	/* another size, a multiple of 8 that is not 0 */
		run->size = (what & 8 ? word(input) % 8191 + 1 : byte(input) + 1) * 8;
		break;
	case 3:	/* one at an index */
		first = what >> 3;
		if (first * run->size <= 65528)
			insert(run, first * run->size, run->size, true);
		break;
	case 4:	/* the same far behind */
		first = word(input);
		if (first * run->size <= 65528)
			insert(run, first * run->size, run->size, true);
		break;
	case 5:	/* many */
		first = byte(input);
		insert_row(run, first, byte(input) % 80, what & 16 ? 2 : 1, what & 8);
		break;
	case 6:	/* the last, behind the one before: shorter, or of any length */
		insert(run, run->at, what & 8 ? word(input) : byte(input) % run->size + 1, false);
		break;
	default:	/* the next: of this size, or a multiple of 8 */
		insert(run, run->at, what & 8 ? byte(input) * 8 : run->size, true);
		expect_first(run);
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	static struct run run;
	struct input input = { data, data + size };
	u32 options = byte(&input);

	run.is_short = options & 128;
	plain_allocations_left = run.is_short ? (long)(options & 31) : -1;
	run.given = 0;
	run.size = 8;
	begin(&run);
	while (input.next < input.end && run.given < MOST)
		step(&run, &input);
	discard(&run);
	return 0;
}

#pragma clang attribute pop
