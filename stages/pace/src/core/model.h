/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The model of the path: the largest rate of the last rounds, the smallest round trip of the last ten seconds, and their product.
 */
#ifndef TARN_PACE_MODEL_H
#define TARN_PACE_MODEL_H

#include "pace.h"

#define RATE_ROUNDS 10		/* how long a rate is remembered, round trips */
#define RTT_WINDOW 76		/* and a round trip, 2^17 us: ten seconds; see pace_restarts() */
#define SILENCE_US 10000	/* a silence is as long as that, and as the smallest round trip, */
#define SILENCE_PACKETS 8	/* and so many packets would have come in it at the estimate */

static __always_inline __u32 estimate(const struct pace *pace)
{
	return pace->best[0].rate;
}

/* Forgets all rates but this one. */
static __always_inline void restart_estimate(struct pace *pace, __u32 rate)
{
	for (int i = 0; i < 3; i++) {
		pace->best[i].round = pace->rounds;
		pace->best[i].rate = rate;
	}
}

/*
 * Takes a rate into account: the largest of the last RATE_ROUNDS, by the algorithm of Kathleen Nichols, which remembers the best, the
 * best since that one, and the best since that one, so that the next is at hand when one is too old.
 */
static __always_inline void remember_rate(struct pace *pace, __u32 rate)
{
	__u32 round = pace->rounds, age;

	if (rate >= pace->best[0].rate || round - pace->best[2].round > RATE_ROUNDS) {
		restart_estimate(pace, rate);
		return;
	}
	if (rate >= pace->best[1].rate) {
		pace->best[1].round = pace->best[2].round = round;
		pace->best[1].rate = pace->best[2].rate = rate;
	} else if (rate >= pace->best[2].rate) {
		pace->best[2].round = round;
		pace->best[2].rate = rate;
	}
	age = round - pace->best[0].round;
	if (age > RATE_ROUNDS) {
		pace->best[0] = pace->best[1];
		pace->best[1] = pace->best[2];
		pace->best[2].round = round;
		pace->best[2].rate = rate;
		if (round - pace->best[0].round > RATE_ROUNDS) {
			pace->best[0] = pace->best[1];
			pace->best[1] = pace->best[2];
		}
	} else if (pace->best[1].round == pace->best[0].round && age > RATE_ROUNDS / 4) {
		/* A quarter of the window without a better second one: any of the latest will do. */
		pace->best[1].round = pace->best[2].round = round;
		pace->best[1].rate = pace->best[2].rate = rate;
	} else if (pace->best[2].round == pace->best[1].round && age > RATE_ROUNDS / 2) {
		pace->best[2].round = round;
		pace->best[2].rate = rate;
	}
}

/* The round trip of a sample that has one. */
static __always_inline __u32 bounded_rtt(const struct pace_sample *sample)
{
	return sample->rtt_us > RTT_MAX_US ? RTT_MAX_US : (__u32)sample->rtt_us;
}

/* So many packets in so long, as a rate. `packets` < 2^31: no overflow. */
static __always_inline __u32 rate_of(__u32 packets, __u64 interval_us)
{
	__u64 rate = ((__u64)packets << RATE_BITS) / (interval_us ? interval_us : 1);

	return rate > RATE_MAX ? RATE_MAX : (__u32)rate;
}

static __always_inline __u32 back_us(const struct pace *pace)
{
	return (__u32)pace->back << 10;
}

/* The round trip without a queue of ours; where no round trip is known, `min_rtt_us` is UNKNOWN and `back` 0. */
static __always_inline __u32 path_us(const struct pace *pace)
{
	return pace->min_rtt_us + back_us(pace);
}

/*
 * How many packets a rate brings in a round trip without a queue, times a gain; rounded up. The first window while no round trip is
 * known. Below 2^(30 + 24 - 8 + 10) = 2^56 before the last shift.
 */
static __always_inline __u32 packets_at(const struct pace *pace, __u32 rate, __u32 gain)
{
	__u64 product;

	if (pace->min_rtt_us == UNKNOWN)
		return 10;
	product = (((__u64)rate * pace->min_rtt_us) >> 8) * gain;
	return (__u32)((product + (1 << RATE_BITS) - 1) >> RATE_BITS);
}

/* How many a rate brings while acknowledgements wait on their way back; below 2^10 * 2^20. */
static __always_inline __u32 packets_back(const struct pace *pace, __u32 rate)
{
	return (__u32)(((__u64)rate * back_us(pace)) >> RATE_BITS);
}

/* How many packets a rate keeps on the way, without a queue of ours; a gain on what does not wait for others. */
static __always_inline __u32 product(const struct pace *pace, __u32 rate, __u32 gain)
{
	return packets_at(pace, rate, gain) + packets_back(pace, rate);
}

/*
 * A rate times a gain in bytes a second, less one percent, so that a queue that comes of rounding goes again. Below
 * 2^(30 + 16 + 10 - 16 + 20) = 2^60.
 */
static __always_inline __u64 bytes_at(__u32 mss, __u32 rate, __u32 gain)
{
	return ((((__u64)rate * mss * gain) >> 16) * 990000) >> (RATE_BITS - 8);
}


/*
 * A round trip has ended: by how much its longest pause exceeds what two packets take at the estimate, smoothed over eight round trips,
 * so that a single pause says little.
 */
static __always_inline void judge_pauses(struct pace *pace, const struct pace_socket *socket)
{
	__u32 pause = (__u32)pace->round_held << 3, held = 0;

	pace->round_held = 0;
	if (pace->full && estimate(pace)) {
		__u64 expected = (2ULL << RATE_BITS) / estimate(pace);
		/* A window that is sent in less than a round trip leaves a pause, too. */
		__u64 window = ((__u64)socket->window << RATE_BITS) / estimate(pace);

		if (socket->srtt_us > window)
			expected += socket->srtt_us - window;
		if (pause > expected)
			held = (pause - (__u32)expected) >> 3;
	}
	pace->held = (7 * (__u32)pace->held + held) >> 3;
}

static __always_inline __u32 held_us(const struct pace *pace)
{
	return (__u32)pace->held << 3;
}

/* How many packets a rate brings in so long, at most 2^24 us. Below 2^54. */
static __always_inline __u32 rate_in(__u32 rate, __u32 us)
{
	return (__u32)(((__u64)rate * us) >> RATE_BITS);
}

/* A silence: a pause between two acknowledgements, at most 2^19 us, which is longer than any drop makes it. */
static __always_inline int is_silence(const struct pace *pace, __u32 pause_us)
{
	return pause_us > most(path_us(pace), SILENCE_US) + 2 * held_us(pace) &&
	       rate_in(estimate(pace), pause_us) > SILENCE_PACKETS;
}

/*
 * Links gather acknowledgements (Wi-Fi, cable, LTE): then they come in lumps. Notes the longest pause between two of a round trip, and
 * whether it is a silence.
 */
static __always_inline void note_pause(struct pace *pace, const struct pace_socket *socket)
{
	__u32 now = (__u32)socket->now_us, pause = (now - pace->acked_us) >> 3;

	pace->acked_us = now;
	if (pause > pace->round_held && !pace->restarts) {
		pace->round_held = least(pause, 0xffff);
		pace->silent |= is_silence(pace, (__u32)pace->round_held << 3);
	}
}

/* The round trip without a queue of ours, plus a share of it, and of a time when that is longer. */
static __always_inline __u32 rtt_above(const struct pace *pace, __u32 gain, __u32 at_least_us)
{
	return path_us(pace) + most(((__u64)path_us(pace) * gain) >> 8, at_least_us);
}

#endif
