// SPDX-License-Identifier: GPL-2.0
/* See glue.h. */
#include <linux/ip.h>
#include <net/inet_frag.h>

#include "compat.h"
#include "glue.h"
#include "table.h"
#include "zone.h"

/*
 * The two change places: what they contain moves, and what belongs to the memory of each stays. Mainline makes a clone and morphs
 * one packet into the other, at 550 instructions a datagram.
 *
 * Neither may be shared, or owned by a socket: IP unshares what it receives, what is held is only ours, and both are orphaned.
 * An extension is counted, and does not know its packets.
 */
static void swap_contents(struct sk_buff *a, struct sk_buff *b)
{
	u8 clone_a = a->fclone, clone_b = b->fclone;
	struct sk_buff other;

	memcpy(&other, a, sizeof(other));
	memcpy(a, b, sizeof(*a));
	memcpy(b, &other, sizeof(*b));
	a->fclone = clone_a;
	b->fclone = clone_b;
}

/* Makes `skb`, which `before` precedes in the chain that begins with `first`, the first of it. */
static void make_first(struct sk_buff *first, struct sk_buff *before, struct sk_buff *skb)
{
	struct sk_buff *second = first->next, *after = skb->next;

	swap_contents(first, skb);
	first->next = after;
	if (before == first) {
		skb->next = first;
	} else {
		skb->next = second;
		before->next = first;
	}
}

/* A first fragment that has a list of its own (it came out of a tunnel whose packets were fragmented): the list goes into a packet
 * between it and the rest.
 */
static bool split_list(struct sk_buff *head)
{
	struct sk_buff *lists = alloc_skb(0, GFP_ATOMIC);
	int paged = 0, i;

	if (!lists)
		return false;
	for (i = 0; i < skb_shinfo(head)->nr_frags; i++)
		paged += skb_frag_size(&skb_shinfo(head)->frags[i]);
	skb_shinfo(lists)->frag_list = skb_shinfo(head)->frag_list;
	skb_frag_list_init(head);
	lists->data_len = head->data_len - paged;
	lists->len = lists->data_len;
	lists->truesize += lists->data_len;
	head->truesize -= lists->data_len;
	head->data_len = paged;
	head->len -= lists->len;
	lists->csum = 0;
	lists->ip_summed = head->ip_summed;
	lists->next = head->next;
	head->next = lists;
	return true;
}

/* The rest of the chain becomes the list of its first. */
static void chain_up(struct sk_buff *head)
{
	struct sk_buff *part;

	skb_shinfo(head)->frag_list = head->next;
	for (part = head->next; part; part = part->next) {
		if (head->ip_summed != part->ip_summed)
			head->ip_summed = CHECKSUM_NONE;
		else if (head->ip_summed == CHECKSUM_COMPLETE)
			head->csum = csum_add(head->csum, part->csum);
		head->len += part->len;
		head->data_len += part->len;
		head->truesize += part->truesize;
		part->prev = NULL;
	}
	skb_mark_not_on_list(head);
	head->prev = NULL;
}

int glue(struct net *net, struct datagram *datagram, struct sk_buff *skb)
{
	unsigned long route = skb->_skb_refdst, zone = take_zone(skb);
	bool is_second = datagram->entry.is_second;
	struct net_device *dev = skb->dev;
	struct sk_buff *first, *before;
	ktime_t stamp = skb->tstamp;
	u8 clock = stamp_clock(skb);

	skb_orphan(skb);
	/* Route, zone and device stay with the pointer, not with what it contains. */
	skb->_skb_refdst = 0;
	skb->dev = NULL;
	first = core_link(&datagram->core, skb, &before);
	if (first != skb)
		make_first(first, before, skb);
	if (unlikely(skb_unclone(skb, GFP_ATOMIC)) || unlikely(skb_has_frag_list(skb) && !split_list(skb))) {
		skb->_skb_refdst = route;
		put_zone(skb, zone);
		free_packets(skb);
		return -ENOMEM;
	}
	skb_push(skb, skb->data - skb_network_header(skb));
	chain_up(skb);
	skb->dev = dev;
	skb->_skb_refdst = route;
	put_zone(skb, zone);
	skb->tstamp = stamp;
	set_stamp_clock(skb, clock);
	if (is_second)
		ipv6_finish(net, datagram, skb);
	else
		ipv4_finish(net, datagram, skb);
	return 0;
}
