/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the program that lists connections (connections.bpf.c) reports to user space, and what the congestion control notes for it.
 */
#ifndef TARN_PACE_CONNECTIONS_H
#define TARN_PACE_CONNECTIONS_H

/* Its responses, for a connection that has answered a drop of the bandwidth; kept beside the socket. */
struct pace_history {
	__u32 responses;	/* how often it has answered a drop */
	__u32 depth;		/* by how much its estimate fell then, in parts of 256, the last time */
	__u64 began_us;		/* when the last response began, 0 when it is over; the clock of TCP */
	__u64 drained_us;	/* how long responses took, in all */
};

/* What keeps a connection from sending more. */
enum pace_limit {
	LIMIT_PACE,		/* its pace: the estimate of the bandwidth */
	LIMIT_WINDOW,		/* its congestion window: more in flight would only wait in a queue */
	LIMIT_RECEIVER,		/* the receiver has no room for more */
	LIMIT_APPLICATION,	/* there is nothing to send */
};

/* A connection that uses the congestion control. */
struct pace_connection {
	__u8 peer[16];		/* the other end's address; IPv4 as ::ffff:a.b.c.d */
	__u8 local[16];		/* this host's */
	__u16 peer_port, port;	/* as numbers */
	__u32 state;		/* enum pace_state */
	__u32 competing;	/* 1: others keep the queue full */
	__u32 bounded;		/* 1: loss limits the packets in flight */
	__u32 min_rtt_us, rtt_us;
	__u64 rate, pacing;	/* the estimate, and what it sends at: bytes a second */
	__u32 window, in_flight;/* packets */
	__u32 retransmitted;	/* packets */
	enum pace_limit limit;
	__u64 acked;		/* bytes */
	struct pace_history history;
};

#endif
