// SPDX-License-Identifier: GPL-2.0
/* See arrive.h. */
#include <linux/jiffies.h>
#include <linux/netfilter_bridge.h>
#include <net/inet_frag.h>
#include <net/xfrm.h>

#include "arrive.h"
#include "whose.h"

/*
 * Datagrams that had begun in the stack when we began are completed there: for so long, one begins here with its first
 * fragment only.
 */
#define GRACE HZ

/* IPsec: what was decrypted by one state must not be joined with what was not, or by another. */
bool has_same_path(const struct datagram *datagram, const struct sk_buff *skb)
{
#ifdef CONFIG_XFRM
	const struct sec_path *one, *other;
	int i;

	one = skb_sec_path(datagram->witness);
	other = skb_sec_path(skb);
	if (one == other)
		return true;
	if (!one || !other || one->len != other->len)
		return false;
	for (i = 0; i < one->len; i++)
		if (one->xvec[i] != other->xvec[i])
			return false;
#endif
	return true;
}

static bool is_to_begin(const struct reassembly *here, const struct sk_buff *skb, const struct fragment *fragment)
{
	bool is_late = fragment->offset && get_jiffies_64() - here->began < GRACE;

	return !READ_ONCE(here->is_dead) && !is_late && is_ours(here, skb, fragment->is_second);
}

/*
 * The oldest of a source cannot be completed any more once it counts as reused; so it goes, and no source makes the table's chains
 * long. One begins at a time, so that one is enough.
 */
static void give_up_reused(struct reassembly *here, struct shard *shard, struct memory_source *source)
{
	struct memory_entry *oldest = list_first_entry(&source->held, struct memory_entry, by_source);

	if (unlikely(source->begun - oldest->begun > MEMORY_REUSED))
		free_packets(datagram_give_up(here, shard, datagram_of(oldest), &shard->counts[oldest->is_second].reused));
}

/*
 * A datagram begins. `used`: one that is there with the same identifier, but so old that it must be another. Else NULL, and the
 * packet is `*arrival`.
 */
struct datagram *begin_arrival(struct reassembly *here, struct shard *shard, struct sk_buff *skb, const struct fragment *fragment,
			       struct datagram *used, enum arrival *arrival)
{
	struct tarn_reassembly_counts *counts = &shard->counts[fragment->is_second];
	struct datagram *datagram = NULL;

	*arrival = ARRIVAL_PASSES;
	if (used)
		/* Once in thousands of datagrams: its few packets are freed with the lock held. */
		free_packets(datagram_give_up(here, shard, used, &counts->reused));
	if (!is_to_begin(here, skb, fragment)) {
		counts->passed++;
	} else {
		datagram = datagram_begin(here, shard, fragment);
		if (datagram) {
			give_up_reused(here, shard, datagram->entry.source);
			datagram->witness = skb;
			datagram->has_path = may_have_path(skb);
			return datagram;
		}
		counts->no_memory++;
		count_failure(here, fragment->is_second);
		*arrival = ARRIVAL_TAKEN;
	}
	spin_unlock(&shard->lock);
	if (*arrival == ARRIVAL_TAKEN)
		kfree_skb(skb);
	return NULL;
}

/* Why a datagram ends with this verdict. */
static u64 *failure(struct tarn_reassembly_counts *counts, enum core_verdict verdict)
{
	switch (verdict) {
	case CORE_OVERLAP:
		return &counts->overlap;
	case CORE_BAD_END:
		return &counts->bad_end;
	case CORE_BAD_LENGTH:
		return &counts->bad_length;
	case CORE_OTHER_PATH:
		return &counts->security;
	default:
		return &counts->allocation;
	}
}

/* Whether the whole datagram may be one. If not, why. */
static u64 *flaw(const struct datagram *datagram, struct tarn_reassembly_counts *counts)
{
	if (ip_frag_ecn_table[datagram->ecn] == 0xff)
		return &counts->ecn;
	if (datagram->headers + datagram->core.end > CORE_MOST)
		return &counts->bad_end;
	return NULL;
}

/* There was no memory to put it together, which shows after it was counted as complete. */
static void count_unglued(struct reassembly *here, struct shard *shard, bool is_second)
{
	spin_lock(&shard->lock);
	shard->counts[is_second].completed--;
	shard->counts[is_second].allocation++;
	count_failure(here, is_second);
	spin_unlock(&shard->lock);
}

/*
 * A router cuts it again as it came, whatever DF says: `frag_max_size` has how. A host's own is not sent on, and what IPsec finds in it is
 * another packet, whose DF counts.
 */
static bool may_be_sent_on(const struct reassembly *here, const struct sk_buff *skb, bool is_second)
{
	return whose_now(here, is_second) == TARN_REASSEMBLY_ALL || nf_bridge_in_prerouting(skb);
}

/* All fragments are there, and nobody else finds them any more. Without memory to put them together, all are freed. */
static enum arrival finish(struct reassembly *here, struct shard *shard, struct datagram *datagram, struct sk_buff *skb)
{
	enum arrival arrival = ARRIVAL_WHOLE;

	if (glue(here->net, datagram, skb)) {
		count_unglued(here, shard, datagram->entry.is_second);
		arrival = ARRIVAL_TAKEN;
	} else {
		skb->ignore_df = may_be_sent_on(here, skb, datagram->entry.is_second);
	}
	datagram_free(shard, datagram);
	return arrival;
}

/* A fragment that is not just held: the last one missing, a duplicate, or the end of its datagram. */
enum arrival end_arrival(struct reassembly *here, struct shard *shard, struct datagram *datagram, struct sk_buff *skb,
			 enum core_verdict verdict)
{
	struct tarn_reassembly_counts *counts = &shard->counts[datagram->entry.is_second];
	struct sk_buff *packets = NULL;
	u64 *reason = NULL;

	if (verdict == CORE_WHOLE) {
		reason = flaw(datagram, counts);
		if (likely(!reason)) {
			memory_completed(&shard->memory, datagram->entry.source, ktime_get_seconds());
			counts->completed++;
			datagram_remove(here, shard, datagram);
			spin_unlock(&shard->lock);
			return finish(here, shard, datagram, skb);
		}
	} else if (verdict == CORE_DUPLICATE) {
		counts->duplicates++;
	} else {
		reason = failure(counts, verdict);
		if (verdict == CORE_OVERLAP)
			count_overlap(here, datagram->entry.is_second);
	}
	if (reason)
		packets = datagram_give_up(here, shard, datagram, reason);
	spin_unlock(&shard->lock);
	free_packets(packets);
	/* What made it whole is among its packets. */
	if (verdict != CORE_WHOLE)
		kfree_skb(skb);
	return ARRIVAL_TAKEN;
}
