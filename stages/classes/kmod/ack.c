// SPDX-License-Identifier: GPL-2.0
/*
 * See ack.h. A client's next request acknowledges the answer to the last one. Kept back with the request, the server's
 * TCP would miss it, and send its answer again after some ten milliseconds (the tail loss probe of RFC 8985).
 *
 * Its sequence number is that behind the data, as the client's own would have. With that of the data, TCP would take its
 * timestamp for the latest (RFC 7323, section 4.3), and that of a segment sent again would make the first one look old.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <net/dst.h>
#include <net/ip.h>

#include "ack.h"

static void set_length(struct sk_buff *skb, unsigned int length)
{
	if (skb->protocol == htons(ETH_P_IP)) {
		ip_hdr(skb)->tot_len = htons(length);
		ip_send_check(ip_hdr(skb));
	} else {
		ipv6_hdr(skb)->payload_len = htons(length - sizeof(struct ipv6hdr));
	}
}

struct sk_buff *ack_of(const struct sk_buff *skb, unsigned int offset, u32 end_seq)
{
	struct tcphdr room;
	const struct tcphdr *header = skb_header_pointer(skb, offset, sizeof(room), &room);
	unsigned int length = header ? offset + header->doff * 4 : 0;
	struct tcphdr *copied;
	struct sk_buff *ack;

	if (!header || !header->ack || header->syn)
		return NULL;
	ack = alloc_skb(NET_SKB_PAD + length, GFP_ATOMIC);
	if (!ack)
		return NULL;
	skb_reserve(ack, NET_SKB_PAD);
	if (skb_copy_bits(skb, 0, skb_put(ack, length), length)) {
		kfree_skb(ack);
		return NULL;
	}
	skb_reset_mac_header(ack);
	skb_reset_network_header(ack);
	/* Where extension headers of IPv6 are still to be read, that is the first of them. */
	skb_set_transport_header(ack, skb_transport_offset(skb));
	ack->protocol = skb->protocol;
	ack->dev = skb->dev;
	ack->skb_iif = skb->skb_iif;
	ack->mark = skb->mark;
	ack->priority = skb->priority;
	ack->ip_summed = CHECKSUM_UNNECESSARY;	/* the one it had was over the data, too */
	memcpy(ack->cb, skb->cb, sizeof(ack->cb));
	skb_dst_copy(ack, skb);
	skb_ext_copy(ack, skb);		/* that it came by IPsec, or its policy would drop it */
	copied = (struct tcphdr *)(ack->data + offset);
	copied->seq = htonl(end_seq);
	copied->psh = 0;
	copied->fin = 0;
	set_length(ack, length);
	return ack;
}
