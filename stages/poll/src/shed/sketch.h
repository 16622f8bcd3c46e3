/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fair shares without a list of who sends: how often a packet is dropped.
 *
 * Each source and each port is counted in a count-min sketch (Cormode and Muthukrishnan 2005) of two rows: of the counters that a
 * key shares with others the lowest is nearest to its own count, and never below it. With N packets in a window and CELLS counters a
 * row, it is higher by N / CELLS with a chance of a quarter.
 *
 * A window is the time between two looks of the agent. The rate of a key is what it sent in the last window or in this one,
 * whichever is more. Of a key that never sends more than twice the share in a window it is an average over some four windows instead: a
 * window of the least share has room for eight packets, and who sends six in the mean, at random, often has more.
 *
 * What is beyond the share is dropped by chance, 1 - share / rate, as in core-stateless fair queueing (Stoica, Shenker, Zhang 1998): so
 * what passes is spread over the window. A quota would pass a burst at its start, which overflows receive buffers, and nothing then.
 *
 * A port gets a multiple of a source's share, as it serves many: guard.rs.
 *
 * Once a key is known to be heavy, all but one of HEAVY_WEIGHT packets of it are judged by the last chance and counted nowhere; that
 * one counts for all: counting costs more than dropping.
 *
 * Needs: __u32, __u64, SHED_INLINE. No other kernel type: tests compile it, too.
 */
#ifndef TARN_POLL_SKETCH_H
#define TARN_POLL_SKETCH_H

#define SKETCH_ROWS 2
#define SKETCH_CELLS 4096	/* a row; a power of two */
#define SKETCH_SIZE (SHED_REASONS * SKETCH_ROWS * SKETCH_CELLS)
#define HEAVY_CELLS 1024	/* for each reason; a power of two */
#define HEAVY_SIZE (SHED_REASONS * HEAVY_CELLS)
#define CHANCE_ONE 65536U
/* From this chance on a key is heavy. */
#define CHANCE_HEAVY (CHANCE_ONE / 2)
/* One packet in so many is counted for all of a heavy key; a power of two. */
#define HEAVY_WEIGHT 16

/* Rates are packets a window, in units of 1/RATE_ONE. */
#define RATE_ONE 16U
/* Windows without a packet after which a key is forgotten. */
#define MOST_SILENT 4

struct shed_cell {
	__u32 window;	/* that `count` is of */
	__u32 count;	/* packets so far; below 2^28, which no card brings in a quarter of a second */
	__u32 before;	/* the rate, by the windows before */
};

/* A key that is heavy, and by which chance its packets are dropped. */
struct shed_heavy {
	__u32 key;
	__u32 window;	/* in which the chance was found out */
	__u32 chance;
};

/* Spreads every bit of the input over the whole output (the finalizer of MurmurHash3). */
static SHED_INLINE __u32 shed_mix(__u32 value)
{
	value ^= value >> 16;
	value *= 0x85ebca6bU;
	value ^= value >> 13;
	value *= 0xc2b2ae35U;
	return value ^ value >> 16;
}

/* Where a key is counted. Each row has another hash, so that two keys seldom share both cells. */
static SHED_INLINE __u32 shed_place(__u32 reason, __u32 row, __u32 key)
{
	__u32 cell = shed_mix(key + row * 0x9e3779b9U) & (SKETCH_CELLS - 1);

	return (reason * SKETCH_ROWS + row) * SKETCH_CELLS + cell;
}

static SHED_INLINE __u32 shed_heavy_place(__u32 reason, __u32 key)
{
	return reason * HEAVY_CELLS + (key & (HEAVY_CELLS - 1));
}

/* Whether a rate is of a burst that an average would hide for too long. */
static SHED_INLINE int shed_is_steep(__u32 rate, __u32 share)
{
	return rate > (__u64)share * 2 * RATE_ONE;
}

/* The rate of a cell's key by the windows before this one. The cell's own window is over. */
static SHED_INLINE __u32 shed_rate_before(const struct shed_cell *cell, __u32 window, __u32 share)
{
	__u32 silent = window - cell->window - 1, last = cell->count * RATE_ONE;

	if (shed_is_steep(last, share) || shed_is_steep(cell->before, share))
		return silent ? 0 : last;
	/* A window without a packet halves it: nobody gains by a pause. */
	return silent >= MOST_SILENT ? 0 : (cell->before - cell->before / 4 + last / 4) >> silent;
}

/* Counts so many packets. Returns the key's rate, as far as this cell knows. */
static SHED_INLINE __u32 shed_count(struct shed_cell *cell, __u32 window, __u32 weight, __u32 share)
{
	__u32 now;

	if (cell->window != window) {
		cell->before = shed_rate_before(cell, window, share);
		cell->count = 0;
		cell->window = window;
	}
	cell->count += weight;
	now = cell->count * RATE_ONE;
	return now > cell->before && shed_is_steep(now, share) ? now : cell->before;
}

/* The chance that a packet is dropped, in CHANCE_ONE: none for who keeps to the share. */
static SHED_INLINE __u32 shed_chance(__u32 rate, __u32 share)
{
	__u64 allowed = (__u64)share * RATE_ONE;

	if (rate <= allowed)
		return 0;
	return CHANCE_ONE - (__u32)(allowed * CHANCE_ONE / rate);
}

/* Whether the chance that is noted of this key still holds: that of this window or of the last one. */
static SHED_INLINE int shed_is_heavy(const struct shed_heavy *heavy, __u32 key, __u32 window)
{
	return heavy->key == key && window - heavy->window <= 1 && heavy->chance;
}

#endif
