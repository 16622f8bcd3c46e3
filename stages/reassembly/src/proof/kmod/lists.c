// SPDX-License-Identifier: GPL-2.0
/*
 * Linux 2.2.12 (net/ipv4/ip_fragment.c) kept the fragments of a datagram in a list by offset, and searched the place of each from
 * its head. The paper gives the list a second pointer, to its tail: the search runs backwards from there, because fragments
 * arrive mostly in order, and the last fragment (MF = 0) is appended without any search.
 *
 * This counts the comparisons of both. What is not part of the question is as simple as can be: no timer, a few datagrams at a
 * time, fragments that overlap are not taken, and the whole datagram is a chain of its fragments as in today's kernel, where
 * 2.2.12 copied them into one buffer.
 */
#include <linux/ip.h>
#include <linux/list.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <net/ip.h>

#include "lists.h"

/* Datagrams held at a time: the oldest makes room. */
#define MOST_DATAGRAMS 64

/* struct ipq */
struct datagram {
	struct list_head list;		/* newest first */
	struct list_head fragments;	/* struct fragment, by offset */
	__be32 saddr, daddr;
	__be16 id;
	u8 protocol;
	u32 have;			/* bytes held */
	u32 length;			/* of the whole; 0 as long as the last fragment has not come */
	u32 count;
};

/* struct ipfrag */
struct fragment {
	struct list_head list;
	struct sk_buff *skb;
	u32 offset, end;
};

static DEFINE_SPINLOCK(lock);
static LIST_HEAD(datagrams);
static enum lists_strategy strategy;
static u32 held;
static u64 comparisons;

static void datagram_free(struct datagram *datagram)
{
	struct fragment *fragment, *next;

	list_for_each_entry_safe(fragment, next, &datagram->fragments, list) {
		kfree_skb(fragment->skb);
		kfree(fragment);
	}
	list_del(&datagram->list);
	held--;
	kfree(datagram);
}

static struct datagram *datagram_find(const struct iphdr *header)
{
	struct datagram *datagram;

	list_for_each_entry(datagram, &datagrams, list)
		if (datagram->id == header->id && datagram->saddr == header->saddr && datagram->daddr == header->daddr &&
		    datagram->protocol == header->protocol)
			return datagram;
	if (held >= MOST_DATAGRAMS)
		datagram_free(list_last_entry(&datagrams, struct datagram, list));
	datagram = kzalloc(sizeof(*datagram), GFP_ATOMIC);
	if (!datagram)
		return NULL;
	datagram->id = header->id;
	datagram->saddr = header->saddr;
	datagram->daddr = header->daddr;
	datagram->protocol = header->protocol;
	INIT_LIST_HEAD(&datagram->fragments);
	list_add(&datagram->list, &datagrams);
	held++;
	return datagram;
}

/* What the new fragment belongs behind, in 2.2.12. */
static struct list_head *search_from_head(struct datagram *datagram, u32 offset)
{
	struct fragment *next;

	list_for_each_entry(next, &datagram->fragments, list) {
		comparisons++;
		if (next->offset >= offset)
			break;
	}
	return next->list.prev;
}

/* The same, as the paper finds it. */
static struct list_head *search_from_tail(struct datagram *datagram, u32 offset, bool more)
{
	struct fragment *previous;

	if (!more)
		return datagram->fragments.prev;
	list_for_each_entry_reverse(previous, &datagram->fragments, list) {
		comparisons++;
		if (previous->offset < offset)
			break;
	}
	return &previous->list;
}

static bool insert(struct datagram *datagram, struct sk_buff *skb, u32 offset, u32 end, bool more)
{
	struct fragment *fragment = kmalloc(sizeof(*fragment), GFP_ATOMIC);
	struct list_head *before;

	if (!fragment)
		return false;
	before = strategy == LISTS_HEAD ? search_from_head(datagram, offset) : search_from_tail(datagram, offset, more);
	fragment->skb = skb;
	fragment->offset = offset;
	fragment->end = end;
	list_add(&fragment->list, before);
	datagram->have += end - offset;
	datagram->count++;
	if (!more)
		datagram->length = end;
	return true;
}

/* ip_done: whether the list has no hole. */
static bool is_done(const struct datagram *datagram)
{
	const struct fragment *fragment;
	u32 offset = 0;

	if (!datagram->length)
		return false;
	list_for_each_entry(fragment, &datagram->fragments, list) {
		if (fragment->offset > offset)
			return false;
		offset = fragment->end;
	}
	return offset == datagram->length;
}

/*
 * Makes @skb, the fragment that came last, the whole datagram: the caller's pointer must stay valid. Where another one is the
 * first of the list, @skb takes its contents over, and its own go into a clone.
 */
static bool glue(struct datagram *datagram, struct sk_buff *skb)
{
	struct fragment *first = list_first_entry(&datagram->fragments, struct fragment, list), *fragment;
	struct sk_buff **chain;

	if (first->skb != skb) {
		struct sk_buff *clone = skb_clone(skb, GFP_ATOMIC);

		if (!clone)
			return false;
		list_for_each_entry(fragment, &datagram->fragments, list)
			if (fragment->skb == skb)
				fragment->skb = clone;
		skb_morph(skb, first->skb);
		consume_skb(first->skb);
	}
	first->skb = NULL;
	skb_push(skb, -skb_network_offset(skb));
	chain = &skb_shinfo(skb)->frag_list;
	list_for_each_entry(fragment, &datagram->fragments, list) {
		if (!fragment->skb)
			continue;
		skb->len += fragment->skb->len;
		skb->data_len += fragment->skb->len;
		skb->truesize += fragment->skb->truesize;
		*chain = fragment->skb;
		chain = &fragment->skb->next;
		fragment->skb = NULL;
	}
	*chain = NULL;
	skb->ip_summed = CHECKSUM_NONE;
	ip_hdr(skb)->tot_len = htons(ip_hdrlen(skb) + datagram->length);
	ip_hdr(skb)->frag_off = 0;
	ip_send_check(ip_hdr(skb));
	return true;
}

static int take(struct sk_buff *skb)
{
	const struct iphdr *header = ip_hdr(skb);
	u32 offset = (ntohs(header->frag_off) & IP_OFFSET) * 8, length = ntohs(header->tot_len) - ip_hdrlen(skb);
	bool more = header->frag_off & htons(IP_MF);
	struct net_device *device = skb->dev;
	struct datagram *datagram;
	bool is_whole;

	datagram = datagram_find(header);
	if (!datagram)
		return -ENOMEM;
	if (!pskb_pull(skb, ip_hdrlen(skb)) || pskb_trim(skb, length) || !insert(datagram, skb, offset, offset + length, more)) {
		datagram_free(datagram);
		return -EINVAL;
	}
	skb_dst_drop(skb);
	if (!is_done(datagram))
		return -EINPROGRESS;
	is_whole = glue(datagram, skb);
	skb->dev = device;
	datagram_free(datagram);
	/* Without memory for the clone, @skb was freed with the others. */
	return is_whole ? 0 : -EINPROGRESS;
}

int lists_take(struct sk_buff *skb)
{
	int error;

	spin_lock_bh(&lock);
	error = take(skb);
	spin_unlock_bh(&lock);
	if (error && error != -EINPROGRESS)
		kfree_skb(skb);
	return error;
}

void lists_begin(enum lists_strategy chosen)
{
	spin_lock_bh(&lock);
	strategy = chosen;
	comparisons = 0;
	spin_unlock_bh(&lock);
}

void lists_end(void)
{
	struct datagram *datagram, *next;

	spin_lock_bh(&lock);
	list_for_each_entry_safe(datagram, next, &datagrams, list)
		datagram_free(datagram);
	spin_unlock_bh(&lock);
}

u64 lists_comparisons(void)
{
	return comparisons;
}
