/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The cycle of STATE_PROBE: eight phases of a round trip each. In the first, UP, a little more is sent, to see whether it comes
 * back; in the second, DOWN, less, until the queue of that has gone; then as much as the estimate says. Where more came back, the next probe
 * follows at once, and is bolder.
 */
#ifndef TARN_PACE_CYCLE_H
#define TARN_PACE_CYCLE_H

#include "model.h"
#include "published.h"

#define PHASES 8
#define UP 0
#define DOWN 1

#define UP_GAIN 320		/* 1.25 */
#define UP_GAIN_MOST 384	/* with a small product, so that a probe adds a few packets (pace_parameters.probe_packets) */
#define UP_GAIN_FOUND 384	/* once a probe has found more */
#define UP_GAIN_FOUND_AGAIN 448
#define DOWN_GAIN 192		/* 0.75 */
#define FOUND_MORE 282		/* 1.1 times the rate that the probe began with */
#define COMPETING_MOST 6

/* How many phases a cycle has. Where a round trip is long, less of them: what is free is found within half a second. */
static __always_inline __u32 phases(const struct pace *pace)
{
	if (is_published(pace) || path_us(pace) <= 500000 / PHASES)
		return PHASES;
	return most(500000 / path_us(pace), 4);
}

static __always_inline void begin_phase(struct pace *pace, const struct pace_socket *socket, __u32 phase)
{
	pace->phase = phase >= phases(pace) ? UP : phase;
	pace->phase_us = (__u32)socket->now_us;
}

static __always_inline void begin_cycle(struct pace *pace, const struct pace_socket *socket, __u32 phase)
{
	pace->state = STATE_PROBE;
	pace->cycle_rtt_us = UNKNOWN;
	pace->probe_rate = estimate(pace);
	pace->found = 0;
	begin_phase(pace, socket, phase);
}

/*
 * Whether somebody else keeps the queue full: although ours goes in every cycle, no packet of the last one found it near empty. Counted
 * up and down a cycle at a time, and twice as fast after a response, which empties the queue of all that is ours.
 */
static __always_inline void judge_competition(struct pace *pace, const struct pace_parameters *parameters)
{
	if (pace->cycle_rtt_us != UNKNOWN && pace->min_rtt_us != UNKNOWN &&
	    (__u64)pace->cycle_rtt_us * GAIN_ONE > (__u64)path_us(pace) * parameters->competing_above + 1000 * GAIN_ONE)
		pace->competing = least(pace->competing + (pace->responded ? 2 : 1), COMPETING_MOST);
	else if (pace->competing)
		pace->competing--;
	pace->responded = 0;
}

/* Whether a probe has found more, and no queue: then it goes on. */
static __always_inline int finds_more(const struct pace *pace, const struct pace_sample *sample, __u32 elapsed_us)
{
	return pace->phase <= DOWN + 1 && !pace->lost_round && !is_published(pace) &&
	       (pace->phase != UP || elapsed_us >= path_us(pace)) &&
	       (__u64)estimate(pace) * GAIN_ONE > (__u64)pace->probe_rate * FOUND_MORE &&
	       sample->rtt_us > 0 && sample->rtt_us < (__s64)path_us(pace) + (path_us(pace) >> 2) + 1000;
}

/* Whether the phase is over. */
static __always_inline int phase_ends(const struct pace *pace, const struct pace_socket *socket, const struct pace_sample *sample,
				      __u32 elapsed_us)
{
	int round_trip = elapsed_us > path_us(pace);

	switch (pace->phase) {
	case UP:
		/* It takes until so much is in flight to see it come back; with little to send it never will. */
		return round_trip && (sample->losses > 0 || sample->prior_in_flight >= product(pace, estimate(pace), UP_GAIN) ||
				      (!is_published(pace) && elapsed_us > 2 * path_us(pace)));
	case DOWN:
		/* What waits on the way back may be acknowledgements of ours, where that way is thin: a quarter of it goes. */
		return round_trip || socket->in_flight <= product(pace, estimate(pace), GAIN_ONE) - (packets_back(pace, estimate(pace)) >> 2);
	default:
		return round_trip;
	}
}

static __always_inline void go_on_probing(struct pace *pace, const struct pace_parameters *parameters,
					  const struct pace_socket *socket, const struct pace_sample *sample)
{
	__u32 elapsed_us = (__u32)socket->now_us - pace->phase_us;

	if (finds_more(pace, sample, elapsed_us)) {
		if (pace->found < 3)
			pace->found++;
		pace->probe_rate = estimate(pace);
		begin_phase(pace, socket, UP);
		return;
	}
	if (!phase_ends(pace, socket, sample, elapsed_us))
		return;
	if (pace->phase >= phases(pace) - 1) {
		judge_competition(pace, parameters);
		pace->cycle_rtt_us = UNKNOWN;
		pace->probe_rate = estimate(pace);
		pace->found = 0;
	}
	begin_phase(pace, socket, pace->phase + 1);
}

/* A probe's pacing gain. */
static __always_inline __u32 up_gain(const struct pace *pace, const struct pace_parameters *parameters)
{
	__u32 product;

	if (is_published(pace))
		return UP_GAIN;
	if (pace->found)
		return pace->found == 1 ? UP_GAIN_FOUND : UP_GAIN_FOUND_AGAIN;
	product = packets_at(pace, estimate(pace), GAIN_ONE);
	if (!product || parameters->probe_packets * 4 <= product)
		return UP_GAIN;
	return least(GAIN_ONE + parameters->probe_packets * GAIN_ONE / product, UP_GAIN_MOST);
}

#endif
