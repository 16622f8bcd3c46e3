/* SPDX-License-Identifier: GPL-2.0 */
/* What runs in a network namespace, and what is held there. main.c tells how long each lives. */
#ifndef TARN_REASSEMBLY_REASSEMBLY_H
#define TARN_REASSEMBLY_REASSEMBLY_H

#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <net/net_namespace.h>

#include "core.h"
#include "hash.h"
#include "memory.h"
#include "uapi.h"

/*
 * Which fragments belong together. IPv4: source and destination; identifier, protocol; device of the VRF, conntrack zone. IPv6: two
 * words each of the addresses; identifier; device of the VRF or, for link-local addresses, the device, and conntrack zone.
 */
struct datagram_key {
	u64 word[KEY_WORDS];
};

struct datagram {
	struct datagram *next;	/* in its bucket */
	struct datagram_key key;
	struct core core;
	struct memory_entry entry;
	struct sk_buff *witness;	/* the fragment that arrived first: the others' IPsec path must be its */
	u32 bucket;
	u32 charged;		/* bytes of the core's own memory that are in `entry` */
	u32 device;		/* index of the one that the first fragment came in by */
	u16 largest;		/* bytes of the largest fragment, with its IP header */
	u16 largest_whole;	/* the same of those with DF */
	u16 headers;		/* bytes before the first fragment's data that count in the datagram's length */
	u8 ecn;			/* a bit for each mark seen: INET_ECN_NOT_ECT and so on */
	bool has_path;		/* the witness may have an IPsec path */
};

/* Everything of a source is in the shard of its hash, under one lock. */
struct shard {
	spinlock_t lock;
	struct datagram *table[HASH_BUCKETS];
	struct memory_shard memory;
	/* Of what was freed last, to be used next: source_free() and datagram_free(). */
	struct memory_source *spare_source;
	struct datagram *spare_datagram;	/* exchanged, because it is given back without the lock */
	struct tarn_reassembly_counts counts[2];	/* IPv4, IPv6 */
} ____cacheline_aligned_in_smp;

struct settings {
	u64 memory;		/* bytes */
	u32 share;		/* a source's is memory / share */
	u64 timeout[2];		/* ns, IPv4 and IPv6 */
	u32 datagrams;		/* enum tarn_reassembly_datagrams */
};

struct reassembly {
	struct net *net;
	struct settings settings;	/* read without a lock: each value by itself */
	struct memory memory;
	struct hash_numbers numbers;
	u64 began;		/* jiffies64 */
	struct timer_list timer;
	u32 expire_next;	/* the timer's: the shard that it begins with */
	atomic_long_t datagrams;	/* held; the timer runs while there are any */
	bool is_dead;		/* under each shard's lock: nothing is taken any more */
	struct nf_hook_ops hooks[2];
	struct shard shards[MEMORY_SHARDS];
};

/* The entry's datagram. */
static inline struct datagram *datagram_of(struct memory_entry *entry)
{
	return container_of(entry, struct datagram, entry);
}

static inline bool is_second(const struct memory_address *address)
{
	return address->family == MEMORY_SECOND;
}

#endif
