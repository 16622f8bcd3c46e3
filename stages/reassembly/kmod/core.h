/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The core: which fragments of one datagram are there, and in which order they belong. It knows no IP and no kernel; the same
 * file runs in the module, under the fuzzer and in the tests.
 *
 * All fragments of a datagram but the last have one size in practice, because one router or sender cut it. So a fragment's place
 * is offset / size: a slot, found without a comparison, whatever the order of arrival. Slots come in chunks of 64, the first 16
 * are part of the structure. Where sizes differ, the core changes over once to two bits for each 8 bytes of the datagram, covered
 * and start, and sorts when the datagram is whole. No allocation is larger than 512 bytes, so a small fragment with a high offset
 * does not make us hold much more than itself.
 *
 * What overlaps spoils the datagram, in any order of arrival (RFC 5722 asks for that in IPv6; we do it in IPv4, too). Only an
 * exact duplicate is ignored. The caller discards the datagram on every verdict above CORE_DUPLICATE.
 */
#ifndef TARN_REASSEMBLY_CORE_H
#define TARN_REASSEMBLY_CORE_H

#include "plain.h"

/* Slots within the structure, in a chunk, and chunks in a table. */
#define CORE_DIRECT 16
#define CORE_CHUNK 64
#define CORE_TABLE 64

/* The largest datagram, without its header; the end of one whose last fragment has not come. */
#define CORE_MOST 65535
#define CORE_NO_END (~0U)

/* The size while none is known: no fragment has it, an empty one neither, so core_insert() never divides by 0. */
#define CORE_NO_SIZE (~0U)

enum core_verdict {
	CORE_HELD,	/* the packet is the core's now */
	CORE_WHOLE,	/* ... and the datagram is complete */
	CORE_DUPLICATE,	/* the same fragment is there: the packet stays the caller's, as with all that follow */
	CORE_OVERLAP,
	CORE_BAD_END,	/* beyond 65,535 bytes, a second end, or bytes behind the end */
	CORE_BAD_LENGTH, /* empty, or not a multiple of 8 bytes with more to come */
	CORE_NO_MEMORY,
	CORE_OTHER_PATH, /* the core does not say this: its caller found that it came through another tunnel */
};

struct core_units;

struct core {
	/* Where slot i is: table[i / CORE_CHUNK][i % CORE_CHUNK]. At first, the table is `own` and its chunk `direct`. */
	struct core_packet ***table;
	/* Fragments of `size` bytes whose index is below this have a slot, if their chunk is there. 0: ask the slow path. */
	u32 limit;
	u32 size;	/* bytes of every fragment but the last, or CORE_NO_SIZE: no slot is used */
	u32 bytes;	/* sum of the lengths */
	u32 end;	/* bytes of the datagram, or CORE_NO_END */
	u32 top;	/* the highest end of a fragment that is there */
	u32 memory;	/* bytes allocated for the core's own use, beyond the structure */
	struct core_packet *last;	/* the fragment without a successor */
	struct core_units *units; /* where sizes differ */
	struct core_packet **own[1];
	struct core_packet *direct[CORE_DIRECT];
};

/* The structure must be zero. */
static inline void core_init(struct core *core)
{
	core->table = core->own;
	core->own[0] = core->direct;
	core->end = CORE_NO_END;
	core->size = CORE_NO_SIZE;
}

enum core_verdict core_insert_slowly(struct core *core, struct core_packet *packet, u32 offset, u32 length, bool more);

/*
 * Takes a fragment of `length` bytes (at most 65,535) for `offset` (a multiple of 8, at most 65,528).
 *
 * Written out where it is called: this is what each fragment costs. `limit` is at most 65535 / size, so that the end of what has a
 * slot is at most 65,535; and at most the last fragment's index, so that nothing here lies behind the end.
 */
static inline enum core_verdict core_insert(struct core *core, struct core_packet *packet, u32 offset, u32 length, bool more)
{
	struct core_packet **chunk;
	u32 index, end = offset + length;

	if (unlikely(!more || length != core->size))
		return core_insert_slowly(core, packet, offset, length, more);
	index = offset / length;
	if (unlikely(index >= core->limit || index * length != offset))
		return core_insert_slowly(core, packet, offset, length, more);
	chunk = core->table[index / CORE_CHUNK];
	if (unlikely(!chunk))
		return core_insert_slowly(core, packet, offset, length, more);
	if (unlikely(chunk[index % CORE_CHUNK]))
		return CORE_DUPLICATE;
	chunk[index % CORE_CHUNK] = packet;
	piece_of(packet)->offset = offset;
	piece_of(packet)->length = length;
	if (end > core->top)
		core->top = end;
	core->bytes += length;
	return core->bytes == core->end ? CORE_WHOLE : CORE_HELD;
}

/* The packet at offset 0, or NULL. */
struct core_packet *core_first(const struct core *core);

/*
 * Of a datagram that is whole: all packets in order, chained by `next`. `before` is set to the one that comes before `packet`, or
 * to NULL. The core's memory is given back. A datagram of a single fragment never comes here.
 */
struct core_packet *core_link(struct core *core, struct core_packet *packet, struct core_packet **before);

/* All packets in any order, chained by `next`. The core is empty afterwards. */
struct core_packet *core_take(struct core *core);

#endif
