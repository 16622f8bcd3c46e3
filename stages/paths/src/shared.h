/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF programs and the agent share. The Rust types are those of the programs' maps and variables.
 */
#ifndef TARN_PATHS_SHARED_H
#define TARN_PATHS_SHARED_H

/* Devices that can be measured at a time: 32 groups of 64 uplinks. Slot 0 is nobody's. */
#define SLOTS 2049

/* Devices are found by the low bits of their index. */
#define INDEXES 65536

/* One in the averages: K of the published formula is a part of it. */
#define ONE 1024

/*
 * How busy a device is, as one CPU sees it. The kernel adds to it without a lock, for only this CPU does; whoever reads it may
 * see two fields of different moments, which is no harm to an average.
 */
struct path_load {
	__u64 tick;		/* the jiffy of the last update */
	__u64 bytes;		/* sent since */
	__u64 load;		/* bytes a jiffy, smoothed (ema_load), times ONE */
	__u64 unevenness;	/* how far a jiffy's bytes are from it, smoothed (ema_time_delta), times ONE */
};

/* A device that is measured. */
struct path_device {
	__u64 namespace;	/* cookie of its network namespace: an index means something only there */
	__u32 index;		/* 0: the slot is free */
	__u32 reserved;
};

/*
 * A histogram of round trips, log-linear: FINE buckets for each power of two, so that what lies in one differs by at most a
 * sixteenth. From 16 us, below which all are in the first bucket, to 16.8 s, above which all are in the last.
 */
#define FINE_BITS 4
#define FINE (1 << FINE_BITS)
#define ROUND_TRIP_BITS 24
#define BUCKETS ((ROUND_TRIP_BITS - FINE_BITS) * FINE)

/*
 * The round trips by a device, as one CPU has seen them. Counts only grow, and wrap: the agent goes by differences over a minute,
 * and for one to be wrong, there would have to be 60 million round trips a second.
 */
struct path_round_trips {
	__u64 sum_us;
	__u32 buckets[BUCKETS];
};

/* A path of the published rule, for the experiment that shows it (published.bpf.c). */
struct published_path {
	struct path_device device;
	__u32 gateway;		/* big endian */
	__u32 load;		/* bytes a jiffy */
	__u32 unevenness;
	__u32 reserved;
	__u64 tick;		/* the jiffy of the last update */
};

/* The answer of read_jiffies. */
struct path_clock {
	__u64 jiffies;
};

#endif
