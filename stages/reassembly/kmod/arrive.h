/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What happens to a fragment. ipv4.c and ipv6.c read its headers; arrive() finds its datagram and puts it there. arrive() is written
 * out in both, because it is what each fragment costs; what happens once a datagram, or rarely, is in arrive.c.
 *
 * Everything of a fragment's source is in one shard, so that one lock covers all that its arrival changes. It is taken once; packets
 * are freed, datagrams glued together and others given up after it.
 */
#ifndef TARN_REASSEMBLY_ARRIVE_H
#define TARN_REASSEMBLY_ARRIVE_H

#include <linux/netfilter.h>
#include <net/dst.h>

#include "glue.h"
#include "reassembly.h"
#include "table.h"

enum arrival {
	ARRIVAL_PASSES,		/* not ours: as it was */
	ARRIVAL_TAKEN,		/* held, or freed */
	ARRIVAL_WHOLE,		/* the packet is the whole datagram now */
};

/* What a fragment's headers say. */
struct fragment {
	struct datagram_key key;
	struct memory_address source;
	u32 hash;		/* of the key */
	u32 source_hash;	/* of its source alone */
	u32 headers;		/* bytes from the network header to the fragment's data: what is pulled */
	u32 counted;		/* of them, those that count in the datagram's length */
	u32 offset;
	u32 length;		/* at most 65,535 */
	u32 size;		/* with its IP header */
	u8 ecn;			/* one bit */
	bool more;
	bool is_whole;		/* DF */
	bool is_second;
};

/* In arrive.c. With the lock, which begin_arrival() gives back when it returns NULL, and end_arrival() in any case. */
struct datagram *begin_arrival(struct reassembly *here, struct shard *shard, struct sk_buff *skb, const struct fragment *fragment,
			       struct datagram *used, enum arrival *arrival);
enum arrival end_arrival(struct reassembly *here, struct shard *shard, struct datagram *datagram, struct sk_buff *skb,
			 enum core_verdict verdict);

/* Whether a fragment came the way that the first of its datagram came. */
bool has_same_path(const struct datagram *datagram, const struct sk_buff *skb);

static inline bool may_have_path(const struct sk_buff *skb)
{
#ifdef CONFIG_SKB_EXTENSIONS
	return skb->active_extensions;
#else
	return false;
#endif
}

/* What the datagram is to be like, of all its fragments. */
static __always_inline void note_fragment(struct datagram *datagram, const struct sk_buff *skb, const struct fragment *fragment)
{
	datagram->ecn |= fragment->ecn;
	if (fragment->size > datagram->largest)
		datagram->largest = fragment->size;
	if (fragment->is_whole && fragment->size > datagram->largest_whole)
		datagram->largest_whole = fragment->size;
	if (!fragment->offset) {
		datagram->headers = fragment->counted;
		datagram->device = skb->dev->ifindex;
	}
}

/* What is kept must not keep anything else: the route, the connection, the device, its sender's memory. */
static __always_inline void let_go(struct sk_buff *skb)
{
	skb_dst_drop(skb);
	skb_orphan(skb);
	nf_reset_ct(skb);
	skb->dev = NULL;
}

/* The datagram holds a packet more, and what the core has allocated since the last one. */
static __always_inline void charge(struct reassembly *here, struct shard *shard, struct datagram *datagram, u32 truesize)
{
	s32 own = datagram->core.memory - datagram->charged;

	datagram->charged = datagram->core.memory;
	memory_charge(&here->memory, index_of(here, shard), &datagram->entry, (s32)truesize + own);
}

static __always_inline enum core_verdict add(struct datagram *datagram, struct sk_buff *skb, const struct fragment *fragment,
					     bool is_second)
{
	if (unlikely(may_have_path(skb) || datagram->has_path) && !has_same_path(datagram, skb))
		return CORE_OTHER_PATH;
	if (unlikely(!pskb_pull(skb, skb_network_offset(skb) + fragment->headers)))
		return CORE_NO_MEMORY;
	if (is_second)
		ipv6_leave_out(skb, fragment->headers);
	return core_insert(&datagram->core, skb, fragment->offset, fragment->length, fragment->more);
}

static __always_inline enum arrival arrive(struct reassembly *here, struct sk_buff *skb, const struct fragment *fragment,
					   bool is_second)
{
	struct shard *shard = &here->shards[hash_shard(fragment->source_hash)];
	struct datagram *datagram;
	enum core_verdict verdict;

	spin_lock(&shard->lock);
	datagram = datagram_find(shard, hash_bucket(fragment->hash), &fragment->key, is_second);
	if (unlikely(!datagram || datagram->entry.source->begun - datagram->entry.begun > MEMORY_REUSED)) {
		enum arrival arrival;

		datagram = begin_arrival(here, shard, skb, fragment, datagram, &arrival);
		if (!datagram)
			return arrival;
	}
	shard->counts[is_second].fragments++;
	verdict = add(datagram, skb, fragment, is_second);
	if (likely(verdict <= CORE_WHOLE))
		note_fragment(datagram, skb, fragment);
	if (unlikely(verdict != CORE_HELD))
		return end_arrival(here, shard, datagram, skb, verdict);
	charge(here, shard, datagram, skb->truesize);
	let_go(skb);
	spin_unlock(&shard->lock);
	if (unlikely(memory_is_full(&here->memory)))
		table_shed(here);
	return ARRIVAL_TAKEN;
}

#endif
