/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A congestion control that backs off as soon as the bandwidth drops: what it knows, what it is told and what it decides.
 *
 * Nothing here depends on the kernel. The same files are compiled into the BPF program (pace.bpf.c) and, for property tests and
 * tuning, into a simulator in user space.
 *
 * Principles
 * - The model is BBR's (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016): the largest rate of
 *   delivery lately, the smallest round trip lately, and packets paced at that rate with about their product in flight.
 * - The window is tight: a quarter above the product where BBR allows twice of it. What is above the product only waits in a queue.
 * - When less comes back than the estimate says while round trips grow, the bandwidth has dropped: the estimate is lowered within a
 *   quarter of a round trip, not when it ages away ten round trips later, and less is sent until the queue has gone (response.h).
 * - Loss bounds what is in flight (bound.h). A single loss means nothing: radio links lose packets that no queue dropped.
 * - What acknowledgements wait in a queue of the other direction is no queue of ours (back.h).
 * - Where somebody else keeps the queue full, a tight window gives everything away: there it is wider (cycle.h).
 *
 * Non-goals: being a scavenger; wresting more than its share from Reno or CUBIC; shallow buffers below a tenth of the product.
 *
 * Units
 * - rates: packets a microsecond, scaled by 2^RATE_BITS, at most RATE_MAX: 1.0 kbit/s to 740 Gbit/s with packets of 1448 bytes
 * - gains: parts of 256 (GAIN_ONE)
 * - windows, in flight: packets; time: microseconds, and where a name says so milliseconds; both wrap, and only differences are used
 */
#ifndef TARN_PACE_H
#define TARN_PACE_H

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

#define RATE_BITS 24
#define RATE_MAX (1U << 30)
#define RTT_MAX_US (1U << 24)	/* 16.8 s; a longer round trip counts as this one */
#define GAIN_ONE 256
#define UNKNOWN (~0U)		/* a smallest round trip of none */

#define COMPETING 2		/* from that count on, somebody else keeps the queue full (cycle.h) */
#define WINDOW_MIN 4		/* keeps acknowledgements coming, with every second packet acknowledged */
#define WINDOW_CROWDED 2	/* where many share a little; a probe brings the next acknowledgements closer again */

/* How a connection answers a drop of the bandwidth; chosen when it begins. */
enum pace_response {
	RESPONSE_TARN,			/* response.h */
	RESPONSE_NONE,			/* the same model without */
	RESPONSE_PUBLISHED,		/* BBR's model with the published change as its text has it (published.h) */
	RESPONSE_PUBLISHED_REPAIRED,	/* and as its author describes it */
	RESPONSES,
};

/* What can be set while connections run. Each is bounded where it is read from the configuration. */
struct pace_parameters {
	__u32 response;			/* enum pace_response */

	__u32 drop_below;		/* a rate below so much of the estimate is a drop, gain, 128 to 243 */
	__u32 queue_margin;		/* a round trip this much above the smallest tells of a queue, gain of the smallest, 8 to 256 */
	__u32 queue_rise;		/* and it has to have grown by so much since the round before, gain of the smallest, 0 to 256 */
	__u32 drain_gain;		/* pacing until the queue has gone, 64 to 250 */

	__u32 window_gain;		/* 256 to 768 */
	__u32 probe_window_gain;	/* while it looks for more, 256 to 768 */
	__u32 competing_window_gain;	/* while somebody else keeps the queue full, 256 to 1024 */
	__u32 competing_above;		/* a round trip that never is below so much of the smallest tells of that, gain, 300 to 1024 */
	__u32 loss_share;		/* more than one packet in so many lost in a round trip bounds what is in flight, 5 to 1000; 0: nothing does */
	__u32 probe_packets;		/* a probe adds at least so many packets to what is in flight, 0 to 64 */

	__u32 bw_delta_alpha;		/* the published sensitivity, gain, 0 to 1024 */
	__u32 bw_delta_ceiling;		/* how much it takes off the pacing gain at most, 0 to 255 */
	__u32 bw_delta_floor;		/* a pacing gain below that reduces the window, 0 to 256 */

	__u32 left;			/* it was taken out, and perhaps what paced it (fq): not 0 */
};

/* The kernel's states of a connection's congestion control (enum tcp_ca_state). */
enum { CA_OPEN, CA_DISORDER, CA_CWR, CA_RECOVERY, CA_LOSS };

/* Where a connection is. */
enum pace_state {
	STATE_STARTUP,		/* twice the rate each round trip, until that no longer brings more */
	STATE_DRAIN,		/* the queue that this has filled goes */
	STATE_PROBE,		/* the estimate, and now and then a little more (cycle.h) */
	STATE_RESPONSE,		/* the bandwidth has dropped: the queue goes */
	STATE_PROBE_RTT,	/* little in flight for 200 ms, to see the round trip without a queue */
};

/* What a connection knows; it has the place that the kernel keeps for any congestion control. All zeros before pace_begin(). */
struct pace {
	struct { __u32 round, rate; } best[3];	/* largest rates of the last rounds (filter.h) */
	__u32 min_rtt_us;			/* the smallest round trip lately, less what its acknowledgement waited for others */
	__u8 min_rtt_seen;			/* and when it was seen, 2^17 us */
	__u8 clock;				/* round trips in which the receiver's clock has kept pace with ours, or CLOCK_WRONG (back.h) */
	__u16 behind_ms;			/* the least that the receiver's clock was behind ours, ms */
	__u32 rounds, round_end;		/* round trips begun; packets delivered when the present one is over */
	__u32 phase_us;				/* when the phase of the cycle began; STATE_PROBE_RTT: when it ends in ms, or 0 */
	__u32 window_before;			/* the window before recovery or STATE_PROBE_RTT */
	__u32 state : 3, response : 2, ca_state : 3, ca_state_before : 3, phase : 3, found : 2, flat_rounds : 2,
	      full : 1,				/* STATE_STARTUP has found the whole bandwidth */
	      round_begins : 1, conserve : 1, rtt_seen : 1, restarts : 1, rtt_round_over : 1,
	      unreliable : 2,			/* rounds whose rates say nothing: too little was in flight */
	      lost_round : 1, responded : 1, competing : 3,
	      silent : 1;			/* the epoch holds a silence (model.h) */
	__u16 held, round_held;			/* how long acknowledgements are held back: lately, and in this round trip; 8 us */
	__u32 epoch_us, epoch_delivered;	/* an epoch's beginning: time and packets delivered then */
	__u32 epoch_rtt_us, epoch_rate;		/* its smallest round trip; the rate of the one before */
	__u32 round_rtt_us, round_before_rtt_us;/* the smallest of this round trip, and of the one before */
	__u32 probe_rate;			/* the estimate when the probe began; until `full`: three rounds ago */
	__u32 cycle_rtt_us;			/* the smallest round trip of the cycle */
	__u32 round_lost, round_delivered;	/* of the socket, when the round trip began */
	__u32 bound : 22,			/* most packets in flight, by loss; 0: none */
	      back : 10;			/* what acknowledgements wait for others on their way back, 2^10 us (back.h) */
	__u32 acked_us;				/* when the last acknowledgement came */
};
_Static_assert(sizeof(struct pace) == 104, "the size of icsk_ca_priv");

/* What the socket says of itself. */
struct pace_socket {
	__u64 now_us;
	__u32 in_flight, window, window_most;
	__u32 delivered, lost;		/* packets, since the connection began */
	__u32 srtt_us;			/* 0: none yet */
	__u32 mss;			/* bytes a packet */
	__u32 peer_ms;			/* the receiver's clock when it sent the last acknowledgement, mostly in ms; 0: unknown */
	__u64 pacing, pacing_most;	/* bytes a second: now, and what its process allows (SO_MAX_PACING_RATE) */
#ifdef PACE_LOOK_CLOSER
	const void *kernel;	/* for PACE_LOOK_CLOSER() */
#endif
};

/*
 * Of the socket, `lost`, `srtt_us` and `peer_ms` are wanted once a round trip. Who reads them only then, because reading costs, defines
 * this to do it, and calls begin, recovery and restarts with all of them.
 */
#ifndef PACE_LOOK_CLOSER
#define PACE_LOOK_CLOSER(socket) ((void)(socket))
#endif

/* What an acknowledgement tells (struct rate_sample of the kernel). */
struct pace_sample {
	__s32 delivered;		/* packets in `interval_us`; negative: it says nothing */
	__s64 interval_us;
	__s64 rtt_us;			/* negative: none */
	__u32 prior_delivered;		/* when the packet that is acknowledged was sent */
	__u32 prior_in_flight;
	__s32 losses;			/* packets found lost just now */
	__u32 acked;			/* packets acknowledged just now */
	__u8 app_limited, ack_delayed;
};

/* What it decides. */
struct pace_decision {
	__u32 window;
	__u64 pacing;			/* bytes a second */
};

/*
 * Between two steps what a connection knows is written and read again. So the kernel's verifier takes each step for itself: without
 * it, it follows every combination of what they do, of which there are more than it is willing to.
 */
#define NEXT_STEP() asm volatile("" : "+m"(*pace))

static __always_inline __u32 least(__u32 one, __u32 other) { return one < other ? one : other; }
static __always_inline __u32 most(__u32 one, __u32 other) { return one > other ? one : other; }

#endif
