// SPDX-License-Identifier: GPL-2.0
/* See table.h. */
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "arrive.h"
#include "compat.h"
#include "expire.h"
#include "table.h"

/* Datagrams that one fragment's arrival gives up at most: a fragment takes at most about so many times what the smallest takes. */
#define SHED_MOST 128

/* Datagrams that one run of the timer gives up at most, so that it does not keep the CPU: a quarter of a million in a second. */
#define EXPIRE_MOST 1024

/* How often the timer looks, so that a datagram is given up at most this late. */
#define LOOK (HZ / 4)

static struct kmem_cache *datagrams;
static struct kmem_cache *sources;

int table_init(void)
{
	datagrams = kmem_cache_create("tarn_reassembly_datagram", sizeof(struct datagram), 0, SLAB_HWCACHE_ALIGN, NULL);
	sources = kmem_cache_create("tarn_reassembly_source", sizeof(struct memory_source), 0, 0, NULL);
	if (datagrams && sources)
		return 0;
	table_exit();
	return -ENOMEM;
}

void table_exit(void)
{
	kmem_cache_destroy(datagrams);
	kmem_cache_destroy(sources);
}

/* A source that sends one datagram after the other comes and goes with each: the last one is kept. */
static void source_free(struct shard *shard, struct memory_source *source)
{
	if (shard->spare_source)
		kmem_cache_free(sources, source);
	else
		shard->spare_source = source;
}

static struct memory_source *source_of(struct shard *shard, const struct memory_address *address, u32 hash)
{
	struct memory_source *source = memory_find(&shard->memory, address, hash);

	if (source)
		return source;
	source = shard->spare_source;
	if (source) {
		memset(source, 0, sizeof(*source));
		shard->spare_source = NULL;
	} else {
		source = kmem_cache_zalloc(sources, GFP_ATOMIC | __GFP_NOWARN);
		if (!source)
			return NULL;
	}
	source->address = *address;
	source->hash = hash;
	memory_add_source(&shard->memory, source);
	return source;
}

/*
 * The timer runs while anything is held. It counts before it looks whether the timer is pending; the timer is no longer pending
 * when it looks whether anything is held: with a barrier on both sides, one of them sees the other.
 */
static void have_timer(struct reassembly *here)
{
	atomic_long_inc(&here->datagrams);
	smp_mb__after_atomic();
	if (!timer_pending(&here->timer))
		mod_timer(&here->timer, jiffies + LOOK);
}

static struct datagram *datagram_alloc(struct shard *shard)
{
	struct datagram *datagram = xchg(&shard->spare_datagram, NULL);

	if (!datagram)
		return kmem_cache_zalloc(datagrams, GFP_ATOMIC | __GFP_NOWARN);
	memset(datagram, 0, sizeof(*datagram));
	return datagram;
}

void datagram_free(struct shard *shard, struct datagram *datagram)
{
	datagram = xchg(&shard->spare_datagram, datagram);
	if (datagram)
		kmem_cache_free(datagrams, datagram);
}

struct datagram *datagram_begin(struct reassembly *here, struct shard *shard, const struct fragment *fragment)
{
	u32 bucket = hash_bucket(fragment->hash);
	struct datagram *datagram = datagram_alloc(shard);
	struct memory_source *source;

	if (!datagram)
		return NULL;
	source = source_of(shard, &fragment->source, fragment->source_hash);
	if (!source) {
		datagram_free(shard, datagram);
		return NULL;
	}
	datagram->key = fragment->key;
	datagram->bucket = bucket;
	datagram->next = shard->table[bucket];
	shard->table[bucket] = datagram;
	core_init(&datagram->core);
	memory_begin(&here->memory, index_of(here, shard), &datagram->entry, source, get_jiffies_64(), ktime_get_seconds());
	memory_charge(&here->memory, index_of(here, shard), &datagram->entry, sizeof(*datagram));
	have_timer(here);
	return datagram;
}

void datagram_remove(struct reassembly *here, struct shard *shard, struct datagram *datagram)
{
	struct memory_source *source = datagram->entry.source;
	struct datagram **place = &shard->table[datagram->bucket];

	memory_note_most(&here->memory);
	while (*place != datagram)
		place = &(*place)->next;
	*place = datagram->next;
	if (memory_end(&here->memory, index_of(here, shard), &datagram->entry))
		source_free(shard, source);
	atomic_long_dec(&here->datagrams);
}

void table_free(struct reassembly *here)
{
	u32 i;

	for (i = 0; i < MEMORY_SHARDS; i++) {
		if (here->shards[i].spare_source)
			kmem_cache_free(sources, here->shards[i].spare_source);
		if (here->shards[i].spare_datagram)
			kmem_cache_free(datagrams, here->shards[i].spare_datagram);
	}
}

void count_failure(struct reassembly *here, bool is_second)
{
	if (is_second)
		__IP6_INC_STATS(here->net, NULL, IPSTATS_MIB_REASMFAILS);
	else
		__IP_INC_STATS(here->net, IPSTATS_MIB_REASMFAILS);
}

void count_overlap(struct reassembly *here, bool is_second)
{
	if (is_second)
		__IP6_INC_STATS(here->net, NULL, IPSTATS_MIB_REASM_OVERLAPS);
	else
		__IP_INC_STATS(here->net, IPSTATS_MIB_REASM_OVERLAPS);
}

struct sk_buff *datagram_give_up(struct reassembly *here, struct shard *shard, struct datagram *datagram, u64 *reason)
{
	struct sk_buff *packets = core_take(&datagram->core);

	++*reason;
	count_failure(here, datagram->entry.is_second);
	memory_failed(&shard->memory, &datagram->entry.source->address);
	datagram_remove(here, shard, datagram);
	datagram_free(shard, datagram);
	return packets;
}

void free_packets(struct sk_buff *packets)
{
	while (packets) {
		struct sk_buff *next = packets->next;

		skb_mark_not_on_list(packets);
		kfree_skb(packets);
		packets = next;
	}
}

static u64 *eviction_of(struct shard *shard, const struct memory_entry *entry, enum memory_reason reason)
{
	struct tarn_reassembly_counts *counts = &shard->counts[entry->is_second];

	switch (reason) {
	case BY_SHARE:
		return &counts->evicted_share;
	case BY_STRANGER:
		return &counts->evicted_stranger;
	default:
		return &counts->evicted_age;
	}
}

void table_shed(struct reassembly *here)
{
	struct memory_choice choice;
	int i;

	for (i = 0; i < SHED_MOST && memory_is_full(&here->memory) && memory_choose(&here->memory, &choice); i++) {
		struct shard *shard = &here->shards[choice.shard];
		struct sk_buff *packets = NULL;
		struct memory_entry *entry;

		spin_lock_bh(&shard->lock);
		entry = memory_is_full(&here->memory) ? memory_victim(&here->memory, &choice) : NULL;
		if (entry)
			packets = datagram_give_up(here, shard, datagram_of(entry), eviction_of(shard, entry, choice.reason));
		spin_unlock_bh(&shard->lock);
		free_packets(packets);
	}
}

void table_rank(struct reassembly *here)
{
	u32 i;

	for (i = 0; i < MEMORY_SHARDS; i++) {
		struct shard *shard = &here->shards[i];

		spin_lock_bh(&shard->lock);
		memory_rank_all(&here->memory, i);
		spin_unlock_bh(&shard->lock);
	}
}

void table_flush(struct reassembly *here)
{
	u32 i, j;

	for (i = 0; i < MEMORY_SHARDS; i++) {
		struct shard *shard = &here->shards[i];
		struct sk_buff *packets;
		bool is_last;

		for (j = 0; j < 4; j++) {
			do {
				struct memory_entry *entry;

				packets = NULL;
				spin_lock_bh(&shard->lock);
				WRITE_ONCE(here->is_dead, true);
				entry = memory_oldest(&shard->memory, j / 2, j % 2);
				is_last = !entry;
				if (entry)
					packets = datagram_give_up(here, shard, datagram_of(entry),
								   &shard->counts[j % 2].stopped);
				spin_unlock_bh(&shard->lock);
				free_packets(packets);
				cond_resched();
			} while (!is_last);
		}
	}
}

/* The oldest datagram of a list, when its time is over. What the sender is to be told is taken out of it first. */
static bool expire_oldest(struct reassembly *here, struct shard *shard, bool is_stranger, bool is_second)
{
	struct sk_buff *first = NULL, *packets = NULL;
	struct memory_entry *entry;
	u32 device = 0;

	spin_lock(&shard->lock);
	entry = memory_oldest(&shard->memory, is_stranger, is_second);
	if (entry && get_jiffies_64() - entry->born < nsecs_to_jiffies64(READ_ONCE(here->settings.timeout[is_second])))
		entry = NULL;
	if (entry) {
		struct datagram *datagram = datagram_of(entry);

		first = core_first(&datagram->core);
		device = datagram->device;
		packets = datagram_give_up(here, shard, datagram, &shard->counts[is_second].timeout);
	}
	spin_unlock(&shard->lock);
	if (!entry)
		return false;
	tell_sender(here->net, packets, first, device, is_second);
	return true;
}

/* Returns whether all are done; `*most` is how many may be given up, and what is left of that. */
static bool expire_shard(struct reassembly *here, struct shard *shard, u32 *most)
{
	u32 i;

	for (i = 0; i < 4; i++) {
		while (expire_oldest(here, shard, i / 2, i % 2))
			if (!--*most)
				return false;
	}
	return true;
}

void table_expire(struct timer_list *timer)
{
	struct reassembly *here = timer_container_of(here, timer, timer);
	u32 most = EXPIRE_MOST, i;
	bool done = true;

	smp_mb();	/* have_timer() */
	for (i = 0; i < MEMORY_SHARDS && done; i++)
		done = expire_shard(here, &here->shards[(here->expire_next + i) % MEMORY_SHARDS], &most);
	here->expire_next += i;
	if (atomic_long_read(&here->datagrams))
		mod_timer(&here->timer, jiffies + (done ? LOOK : 1));
}
