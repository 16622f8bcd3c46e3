// SPDX-License-Identifier: GPL-2.0
/* See datagrams.h. */
#include "compat.h"
#include "datagrams.h"

/* As udp_rcv_segment() and udp_post_segment_fix_csum() of net/udp.h, which are for packets that are already at their socket. */
struct sk_buff *datagrams_split(struct sk_buff *skb)
{
	/* Where IPv6 has yet to read extension headers, that is the first of them, which segmentation goes beyond. */
	int transport = skb_transport_offset(skb);
	struct sk_buff *datagrams, *datagram;
	int mac = skb_mac_offset(skb);

	__skb_push(skb, -mac);
	/* Sums are left as they are, to be made or not: nobody but this host reads these packets. */
	datagrams = __skb_gso_segment(skb, NETIF_F_SG | NETIF_F_IP_CSUM | NETIF_F_IPV6_CSUM, false);
	__skb_pull(skb, -mac);
	if (IS_ERR_OR_NULL(datagrams)) {
		skb_set_transport_header(skb, transport);
		return NULL;
	}
	for (datagram = datagrams; datagram; datagram = datagram->next) {
		__skb_pull(datagram, skb_network_offset(datagram));
		skb_set_transport_header(datagram, transport);
		/* GRO has verified them, or this host has made them. */
		if (datagram->ip_summed == CHECKSUM_NONE)
			datagram->csum_valid = 1;
	}
	consume_skb(skb);
	return datagrams;
}
