// SPDX-License-Identifier: GPL-2.0
/*
 * The core for the tests in Rust: what is written out in core.h becomes callable, and its structures stay C's own. The core is
 * compiled once more here, under other names, with allocations that are counted and can fail, a thread's own.
 */
#include <stdlib.h>

static void *counted_calloc(size_t number, size_t size);
static void counted_free(void *pointer);

#define calloc counted_calloc
#define free counted_free
#define core_insert_slowly counted_core_insert_slowly
#define core_first counted_core_first
#define core_link counted_core_link
#define core_take counted_core_take
#include "../../kmod/core.c"
#undef calloc
#undef free

/* What memory.c and core.c find when they are linked without this file's counting. */
long plain_allocations_left = -1;

static _Thread_local long left = -1;
static _Thread_local long live;

struct shim_core {
	struct core core;
	u32 given;
	u32 most;
	struct core_packet packets[];
};

static void *counted_calloc(size_t number, size_t size)
{
	void *memory;

	if (!left)
		return NULL;
	if (left > 0)
		left--;
	memory = calloc(number, size);
	if (memory)
		live++;
	return memory;
}

static void counted_free(void *pointer)
{
	if (pointer)
		live--;
	free(pointer);
}

/* Room for `most` packets; NULL without memory. */
struct shim_core *shim_core_new(u32 most)
{
	struct shim_core *shim = calloc(1, sizeof(*shim) + most * sizeof(shim->packets[0]));

	if (shim) {
		core_init(&shim->core);
		shim->most = most;
	}
	return shim;
}

void shim_core_free(struct shim_core *shim)
{
	free(shim);
}

/*
 * Inserts the next packet, whose number is its tag, with `allocations` that succeed, and says how many are left. Returns the
 * verdict, or -1: no room.
 */
int shim_core_insert(struct shim_core *shim, u32 offset, u32 length, bool more, long *allocations)
{
	struct core_packet *packet = &shim->packets[shim->given];
	enum core_verdict verdict;

	if (shim->given == shim->most)
		return -1;
	packet->tag = shim->given++;
	left = *allocations;
	verdict = core_insert(&shim->core, packet, offset, length, more);
	*allocations = left;
	left = -1;
	return verdict;
}

/* The tags of a chain. Returns how many there are; a chain in a circle ends at `most` + 1. */
static u32 tags_of(const struct shim_core *shim, const struct core_packet *list, u32 *tags)
{
	u32 number = 0;

	for (; list && number <= shim->most; list = list->next, number++)
		if (number < shim->most)
			tags[number] = list->tag;
	return number;
}

/* Of a whole datagram, with room for all tags. `before` becomes the tag of the packet before the newest, or -1. */
u32 shim_core_link(struct shim_core *shim, u32 *tags, long *before)
{
	struct core_packet *previous, *list = core_link(&shim->core, &shim->packets[shim->given - 1], &previous);

	*before = previous ? (long)previous->tag : -1;
	return tags_of(shim, list, tags);
}

u32 shim_core_take(struct shim_core *shim, u32 *tags)
{
	return tags_of(shim, core_take(&shim->core), tags);
}

/* The tag of the packet at 0, or -1. */
long shim_core_first(const struct shim_core *shim)
{
	const struct core_packet *first = core_first(&shim->core);

	return first ? (long)first->tag : -1;
}

/* What the core says it has allocated, in bytes. */
u32 shim_core_memory(const struct shim_core *shim)
{
	return shim->core.memory;
}

/* Allocations of this thread that were not freed. */
long shim_core_live(void)
{
	return live;
}
