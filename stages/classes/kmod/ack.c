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

/* Another segment of the client's, with the headers of this one, and no data. */
static struct sk_buff *without_data(const struct sk_buff *skb, unsigned int offset, u32 seq, bool is_reset)
{
	struct tcphdr room;
	const struct tcphdr *header = skb_header_pointer(skb, offset, sizeof(room), &room);
	unsigned int length = header ? offset + header->doff * 4 : 0;
	struct tcphdr *copied;
	struct sk_buff *made;

	if (!header || !header->ack || header->syn)
		return NULL;
	made = alloc_skb(NET_SKB_PAD + length, GFP_ATOMIC);
	if (!made)
		return NULL;
	skb_reserve(made, NET_SKB_PAD);
	if (skb_copy_bits(skb, 0, skb_put(made, length), length)) {
		kfree_skb(made);
		return NULL;
	}
	skb_reset_mac_header(made);
	skb_reset_network_header(made);
	/* Where extension headers of IPv6 are still to be read, that is the first of them. */
	skb_set_transport_header(made, skb_transport_offset(skb));
	made->protocol = skb->protocol;
	made->dev = skb->dev;
	made->skb_iif = skb->skb_iif;
	made->mark = skb->mark;
	made->priority = skb->priority;
	made->ip_summed = CHECKSUM_UNNECESSARY;	/* the one it had was over the data, too */
	memcpy(made->cb, skb->cb, sizeof(made->cb));
	skb_dst_copy(made, skb);
	skb_ext_copy(made, skb);		/* that it came by IPsec, or its policy would drop it */
	copied = (struct tcphdr *)(made->data + offset);
	copied->seq = htonl(seq);
	copied->psh = 0;
	copied->fin = 0;
	copied->rst = is_reset;
	set_length(made, length);
	return made;
}

struct sk_buff *ack_of(const struct sk_buff *skb, unsigned int offset, u32 end_seq)
{
	return without_data(skb, offset, end_seq, false);
}

struct sk_buff *reset_of(const struct sk_buff *skb, unsigned int offset, u32 seq)
{
	return without_data(skb, offset, seq, true);
}
