/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The way back. Where others fill the queue of the other direction, acknowledgements wait in it. Round trips are longer then by a queue
 * that is not ours, and a window of the smallest round trip no longer fills the path.
 *
 * TCP's timestamps (RFC 7323, section 3) carry the time at which the receiver sent an acknowledgement. How far its clock is behind ours
 * grows by exactly what the acknowledgement waits, whatever the clocks' difference is; what the data waits changes nothing. So a round
 * trip is
 *
 *	the path + what the data waited + what the acknowledgement waited
 *
 * and where both queues stand, their minima hardly ever fall together: no round trip is as short as the path. Each is looked for by
 * itself. `behind_ms` is the least that the receiver's clock has been behind, and `min_rtt_us` the smallest round trip less what its
 * acknowledgement waited above that.
 *
 * Most clocks count milliseconds; RFC 7323 allows others. A clock is believed after CLOCK_KEEPS round trips in which it has kept
 * pace with ours, within a round trip, and not any more once it has not. Until then, and without it, `back` is 0, as if this file were
 * not there. Clocks drift by up to 200 ppm: the least is raised by CLOCK_DRIFT_MS in ten seconds.
 *
 * On a thin way back our own acknowledgements make a queue. Nothing tells it from that of others but that it goes when we send less:
 * DOWN and STATE_PROBE_RTT do not count it whole (cycle.h, window.h).
 *
 * A receiver that lies can have its own path's queue filled, a little more each round trip, up to what a second of the rate brings. It
 * can have that by acknowledging what has not come yet, too.
 */
#ifndef TARN_PACE_BACK_H
#define TARN_PACE_BACK_H

#include "model.h"
#include "published.h"

#define BACK_RTT_LEAST_US 4000	/* of a shorter round trip, milliseconds tell nothing */
#define BACK_SLACK_US 2000	/* rounding of both clocks */
#define NOISE_US 17000		/* some clocks step by 10 or 16 ms; and a stamp may be that of a packet that leaves a little later */
#define CLOCK_KEEPS 7		/* round trips until a clock is believed */
#define CLOCK_WRONG 0xff	/* it never is again */
#define CLOCK_DRIFT_MS 2	/* in ten seconds, when the smallest round trip is looked for anew */

/* How far the receiver's clock is behind ours, ms; differences are below half a minute. */
static __always_inline __u16 peer_is_behind(const struct pace_socket *socket)
{
	return (__u16)(socket->now_us / 1000 - socket->peer_ms);
}

/* By how much more than the least it is behind, us; less is negative. */
static __always_inline __s32 behind_us(const struct pace *pace, const struct pace_socket *socket)
{
	return (__s16)(peer_is_behind(socket) - pace->behind_ms) * 1000;
}

static __always_inline __u32 back_slack_us(const struct pace *pace)
{
	return BACK_SLACK_US + (pace->min_rtt_us >> 3);
}

/* Less than that says nothing of the smallest round trip, which would be that of the largest error. */
static __always_inline __s32 noise_us(const struct pace *pace)
{
	return most(back_slack_us(pace), NOISE_US);
}

/* By how much a round trip is longer than the smallest, us. */
static __always_inline __u32 longer_us(const struct pace *pace, const struct pace_sample *sample)
{
	__u32 rtt_us = bounded_rtt(sample);

	return rtt_us > pace->min_rtt_us ? rtt_us - pace->min_rtt_us : 0;
}

/* The clock is watched from the smallest round trip on. */
static __always_inline void watch_clock(struct pace *pace, const struct pace_socket *socket)
{
	pace->clock = 1;
	pace->back = 0;
	pace->behind_ms = peer_is_behind(socket);
}

/*
 * The clock counts something else, or has been set. Where it was believed, the smallest round trip is worth nothing either, and is looked
 * for anew at once; and this connection does not believe it again: one that counts a little otherwise would mislead it time after time.
 */
static __always_inline void give_up_clock(struct pace *pace, const struct pace_socket *socket)
{
	int believed = pace->clock == CLOCK_KEEPS;

	if (believed)
		pace->min_rtt_seen = (__u8)(socket->now_us >> 17) - RTT_WINDOW - 1;
	pace->clock = believed ? CLOCK_WRONG : 0;
	pace->back = 0;
}

/* A round trip has ended: whether the receiver's clock is believed. */
static __always_inline int believes_clock(struct pace *pace, const struct pace_socket *socket, __u32 rtt_us)
{
	__s32 behind = behind_us(pace, socket);
	__u32 moved_us = behind < 0 ? -behind : behind;

	if (!pace->clock || pace->clock == CLOCK_WRONG)
		return 0;
	if (moved_us > rtt_us + BACK_SLACK_US) {
		give_up_clock(pace, socket);
		return 0;
	}
	if (pace->clock < CLOCK_KEEPS)
		pace->clock++;
	return pace->clock == CLOCK_KEEPS;
}

/*
 * The round trip of the path is shorter than any was, by so much: the queues were never empty together. A clock that counts a little
 * otherwise says that again and again, until nothing is left.
 */
static __always_inline void shorten_min_rtt(struct pace *pace, const struct pace_socket *socket, __u32 us)
{
	if (us >= pace->min_rtt_us - BACK_RTT_LEAST_US)
		give_up_clock(pace, socket);
	else
		pace->min_rtt_us -= us;
}

/* A round trip has ended in `rtt_us`: the least that the receiver's clock was behind, and what is left of the smallest round trip. */
static __always_inline void find_minima(struct pace *pace, const struct pace_socket *socket, __u32 rtt_us)
{
	__s32 behind = behind_us(pace, socket), shorter_us;
	__u8 now = (__u8)(socket->now_us >> 17);

	if (behind < -noise_us(pace)) {
		pace->behind_ms = peer_is_behind(socket);
		shorten_min_rtt(pace, socket, -behind);
		return;
	}
	shorter_us = pace->min_rtt_us - (rtt_us - behind);
	if (shorter_us <= noise_us(pace))
		return;
	shorten_min_rtt(pace, socket, shorter_us);
	/* One that is too old already is looked for anew all the same. */
	if ((__u8)(now - pace->min_rtt_seen) <= RTT_WINDOW)
		pace->min_rtt_seen = now;
}

/* How long this acknowledgement has waited on its way back, us. */
static __always_inline __u32 waited_back(const struct pace *pace, const struct pace_socket *socket, __u32 longer)
{
	__s32 behind = behind_us(pace, socket);

	return behind > (__s32)back_slack_us(pace) ? least(behind - BACK_SLACK_US / 2, longer) : 0;
}

/*
 * A round trip has ended. It takes a few until a wait counts whole. A wait that is no longer than acknowledgements are held back, because
 * a link gathers them, is in held_us() already.
 */
static __always_inline void judge_way_back(struct pace *pace, const struct pace_socket *socket, const struct pace_sample *sample)
{
	__u32 most_us = 2 * back_us(pace) + most(pace->min_rtt_us, 1 << 12), waited_us;

	if (sample->rtt_us <= 0 || pace->min_rtt_us == UNKNOWN || !believes_clock(pace, socket, bounded_rtt(sample)))
		return;
	find_minima(pace, socket, bounded_rtt(sample));
	if (pace->clock != CLOCK_KEEPS)
		return;
	waited_us = waited_back(pace, socket, longer_us(pace, sample));
	if (waited_us <= held_us(pace))
		waited_us = 0;
	pace->back = least((least(waited_us, most_us) + 512) >> 10, 0x3ff);
}

/* A round trip was the smallest, or the smallest is too old to be believed: it is this one, less what its acknowledgement waited. */
static __always_inline void begin_min_rtt(struct pace *pace, const struct pace_socket *socket, const struct pace_sample *sample, int old)
{
	__s32 behind;

	pace->min_rtt_us = most(1, bounded_rtt(sample));
	pace->min_rtt_seen = (__u8)(socket->now_us >> 17);
	if (pace->clock == CLOCK_WRONG)
		return;
	if (!socket->peer_ms || is_published(pace) || pace->min_rtt_us < BACK_RTT_LEAST_US) {
		pace->clock = 0;
		pace->back = 0;
		return;
	}
	behind = behind_us(pace, socket);
	if (pace->clock < CLOCK_KEEPS) {
		if (!pace->clock || behind < -(__s32)back_slack_us(pace) || behind > (__s32)back_slack_us(pace))
			watch_clock(pace, socket);
		return;
	}
	if (behind < 0)
		pace->behind_ms = peer_is_behind(socket);
	else if (behind > noise_us(pace))
		shorten_min_rtt(pace, socket, behind);
	if (old && behind > CLOCK_DRIFT_MS * 1000)
		pace->behind_ms += CLOCK_DRIFT_MS;
}

/* Whether this round trip, without what its acknowledgement has waited on its way back, tells of no queue. */
static __always_inline int is_short_there(const struct pace *pace, const struct pace_parameters *parameters, struct pace_socket *socket,
					  const struct pace_sample *sample)
{
	__u32 longer, waited_us, margin_us;

	if (sample->rtt_us <= 0 || pace->clock != CLOCK_KEEPS)
		return 0;
	PACE_LOOK_CLOSER(socket);
	longer = longer_us(pace, sample);
	waited_us = waited_back(pace, socket, longer);
	margin_us = most(((__u64)pace->min_rtt_us * parameters->queue_margin) >> 8, BACK_SLACK_US);
	return longer - waited_us <= margin_us + held_us(pace);
}

#endif
