// SPDX-License-Identifier: GPL-2.0
/* See expire.h. */
#include <linux/icmpv6.h>
#include <net/icmp.h>
#include <net/ip.h>
#include <net/ipv6.h>

#include "compat.h"
#include "expire.h"
#include "table.h"
#include "whose.h"

static void tell_ipv4(struct sk_buff *skb)
{
	if (route_input(skb, ip_hdr(skb), skb->dev) && skb_rtable(skb)->rt_type == RTN_LOCAL)
		icmp_send(skb, ICMP_TIME_EXCEEDED, ICMP_EXC_FRAGTIME, 0);
}

static void tell_ipv6(struct net *net, struct sk_buff *skb)
{
	if (is_for_host_ipv6(net, skb))
		icmpv6_send(skb, ICMPV6_TIME_EXCEED, ICMPV6_EXC_FRAGTIME, 0);
}

static struct sk_buff *without(struct sk_buff *packets, const struct sk_buff *skb)
{
	struct sk_buff **place = &packets;

	while (*place != skb)
		place = &(*place)->next;
	*place = skb->next;
	return packets;
}

void tell_sender(struct net *net, struct sk_buff *packets, struct sk_buff *first, u32 device, bool is_second)
{
	if (is_second)
		__IP6_INC_STATS(net, NULL, IPSTATS_MIB_REASMTIMEOUT);
	else
		__IP_INC_STATS(net, IPSTATS_MIB_REASMTIMEOUT);
	if (first) {
		packets = without(packets, first);
		skb_mark_not_on_list(first);
		rcu_read_lock();
		first->dev = dev_get_by_index_rcu(net, device);
		if (first->dev && is_second)
			tell_ipv6(net, first);
		else if (first->dev)
			tell_ipv4(first);
		rcu_read_unlock();
		kfree_skb_reason(first, SKB_DROP_REASON_FRAG_REASM_TIMEOUT);
	}
	free_packets(packets);
}
