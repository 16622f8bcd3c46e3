/* SPDX-License-Identifier: GPL-2.0 */
/* The datagrams that are held: how one begins, is found, and ends. All under its shard's lock, unless said otherwise. */
#ifndef TARN_REASSEMBLY_TABLE_H
#define TARN_REASSEMBLY_TABLE_H

#include "reassembly.h"

int table_init(void);
void table_exit(void);

/* The index of a shard. */
static inline u32 index_of(const struct reassembly *here, const struct shard *shard)
{
	return shard - here->shards;
}

/* The families' keys are of different lengths, so equal words are not enough. */
static __always_inline struct datagram *datagram_find(const struct shard *shard, u32 bucket, const struct datagram_key *key,
						      bool is_second)
{
	u32 words = is_second ? KEY_WORDS : KEY_WORDS_FIRST, i;
	struct datagram *datagram = shard->table[bucket];

	for (; datagram; datagram = datagram->next) {
		for (i = 0; i < words && datagram->key.word[i] == key->word[i]; i++)
			;
		if (i == words && datagram->entry.is_second == is_second)
			break;
	}
	return datagram;
}

struct fragment;

/* A new datagram for a fragment, which it does not hold yet; NULL without memory. */
struct datagram *datagram_begin(struct reassembly *here, struct shard *shard, const struct fragment *fragment);

/* Nobody finds it any more. What it holds is still its own. */
void datagram_remove(struct reassembly *here, struct shard *shard, struct datagram *datagram);

/* Frees one that was removed and holds nothing any more. Without the lock, too. */
void datagram_free(struct shard *shard, struct datagram *datagram);

/*
 * Removes and frees a datagram that fails for `reason`, a member of struct tarn_reassembly_counts, and returns its packets for
 * free_packets(), which needs no lock.
 */
struct sk_buff *datagram_give_up(struct reassembly *here, struct shard *shard, struct datagram *datagram, u64 *reason);
void free_packets(struct sk_buff *packets);

/* Counts it in the kernel's own counters, as datagram_give_up() does: ReasmFails, Ip6ReasmFails. */
void count_failure(struct reassembly *here, bool is_second);

/* And of those whose fragments overlap. */
void count_overlap(struct reassembly *here, bool is_second);

/* Gives datagrams up until the memory is below its ceiling, a bounded number. Without a lock. */
void table_shed(struct reassembly *here);

/* After the share has changed: which sources are above it. Without a lock. */
void table_rank(struct reassembly *here);

/* Gives all datagrams up, for good: nothing begins any more. Without a lock, from process context. */
void table_flush(struct reassembly *here);

/* Frees what is kept for later use. Nothing begins any more. */
void table_free(struct reassembly *here);

/* The timer: gives up those whose time is over. */
void table_expire(struct timer_list *timer);

#endif
