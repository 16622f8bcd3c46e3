/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs and their user side share. Declared here once: libbpf-cargo emits the Rust types of every struct below that a
 * map or a global uses. Only the agent writes, but for the counters, which only the programs write.
 */
#ifndef TARN_POLL_SHARED_H
#define TARN_POLL_SHARED_H

/* As many NAPIs are watched: an entry for each receive queue of each device. */
#define MOST_NAPIS 1024
/* As many devices are watched. */
#define MOST_DEVICES 64
/* Shares are found by the low bits of a device's index: of two devices that have them in common one sheds. */
#define SHARES 1024

/* What a NAPI's polls came to since it is watched. */
struct poll_napi {
	__u64 polls;
	__u64 full;	/* polls that used up their weight, so that the NAPI was polled again at once */
	__u64 work;	/* packets */
	__u64 weight;	/* packets that the last poll might take */
	__u64 threaded;	/* polls by the NAPI's own thread */
};

/* What the agent does with a device. */
struct poll_device {
	__u32 share;		/* as in struct poll_share, for figures */
	__u32 threaded;		/* whether the agent has made it threaded, so that the agent's end has to undo that */
	__u32 mode;		/* enum Mode of guard.rs, for figures */
	__u32 used;		/* of a CPU that its busiest thread takes, in thousandths */
	__u64 storms;		/* how often it left the softirqs */
	__u64 demotions;	/* how often a thread of it took too much */
};

/* What a device sheds. */
struct poll_share {
	__u32 device;	/* its index */
	__u32 share;	/* packets that one source may send in a window, on each CPU; 0: nothing is shed */
	__u32 port;	/* the same of what is addressed to one port */
	__u32 alarm;	/* whether to shed also when polls are full for so long that the agent may not get the CPU to look */
	__u32 ran;	/* whether a packet was judged since the agent has written this */
};

/* The agent's, for all devices. */
struct poll_control {
	__u64 beat;	/* CLOCK_MONOTONIC in ns when the agent last looked */
	__u32 window;	/* how often it has looked; nothing is shed by an agent that does not look */
	__u32 sheds;	/* whether any device sheds */
	__u32 next;	/* whether any has a program of another stage behind this one */
	__u32 redirects;	/* whether what is dropped goes to the sockets of `handover` */
};

/* Why a packet was dropped. */
enum shed_reason {
	SHED_SOURCE,	/* its source sent more than its share */
	SHED_PORT,	/* what it is addressed to got more than its share */
	SHED_REASONS,
};

/* What a device's packets came to, by the low bits of its index. */
struct poll_counts {
	__u64 shed[SHED_REASONS];	/* dropped, by reason */
	__u64 spared;			/* passed although they were beyond a share */
};

/* Who sent what was dropped, and to which port. */
struct shed_sender {
	__u32 address[4];	/* network byte order; an IPv4 address is the first word */
	__u16 port;		/* destination, network byte order; 0 where the protocol has none */
	__u8 protocol;
	__u8 family;		/* AF_INET or AF_INET6 */
};

#endif
