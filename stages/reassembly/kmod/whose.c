// SPDX-License-Identifier: GPL-2.0
/* See whose.h. */
#include <linux/inetdevice.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <net/addrconf.h>
#include <net/ip6_route.h>
#include <net/route.h>

#include "whose.h"

/* Addresses of a device that are compared before the routes are asked. */
#define ADDRESSES_MOST 4

/* Nearly always, the address is one of the device that the packet came in by: the routes need ten times as much to say so. */
static bool is_of_device_ipv4(const struct in_device *in_dev, __be32 address)
{
	const struct in_ifaddr *ifa;
	u32 i = 0;

	in_dev_for_each_ifa_rcu(ifa, in_dev) {
		if (ifa->ifa_local == address)
			return true;
		if (++i == ADDRESSES_MOST)
			break;
	}
	return false;
}

static bool is_of_device_ipv6(const struct inet6_dev *in_dev, const struct in6_addr *address)
{
	const struct inet6_ifaddr *ifa;
	u32 i = 0;

	list_for_each_entry_rcu(ifa, &in_dev->addr_list, if_list) {
		/* Until it is known that nobody else has the address, ipv6_chk_addr() decides. */
		if (ipv6_addr_equal(&ifa->addr, address))
			return !(ifa->flags & IFA_F_TENTATIVE);
		if (++i == ADDRESSES_MOST)
			break;
	}
	return false;
}

/*
 * Multicast is taken on a host, as the stack would do if a socket joined; whether one did is asked where it is delivered. A
 * multicast router forwards it, and its fragments pass.
 */
bool is_for_host_ipv4(struct net *net, const struct sk_buff *skb)
{
	const struct in_device *in_dev = __in_dev_get_rcu(skb->dev);
	__be32 destination = ip_hdr(skb)->daddr;
	unsigned int type;

	if (in_dev && is_of_device_ipv4(in_dev, destination))
		return true;
	type = inet_addr_type_dev_table(net, skb->dev, destination);
	if (type == RTN_LOCAL || type == RTN_BROADCAST)
		return true;
	return type == RTN_MULTICAST && in_dev && !IN_DEV_MFORWARD(in_dev);
}

/* Anycast addresses, and prefixes that are local by a route, are found by the route alone. */
static bool has_local_route(struct net *net, const struct sk_buff *skb)
{
	struct rt6_info *route = rt6_lookup(net, &ipv6_hdr(skb)->daddr, &ipv6_hdr(skb)->saddr, skb->dev->ifindex, skb, 0);
	bool is_local = route && route->rt6i_flags & (RTF_LOCAL | RTF_ANYCAST);

	ip6_rt_put(route);
	return is_local;
}

bool is_for_host_ipv6(struct net *net, const struct sk_buff *skb)
{
	const struct in6_addr *destination = &ipv6_hdr(skb)->daddr;
	const struct inet6_dev *in_dev = __in6_dev_get(skb->dev);

	if (!in_dev)
		return false;
	if (ipv6_addr_is_multicast(destination))
#ifdef CONFIG_IPV6_MROUTE
		return !atomic_read(&in_dev->cnf.mc_forwarding);
#else
		return true;
#endif
	return is_of_device_ipv6(in_dev, destination) || ipv6_chk_addr(net, destination, skb->dev, 0) || has_local_route(net, skb);
}

/* Connection tracking has registered its own reassembly in this namespace. */
static bool is_tracking(const struct net *net, bool is_second)
{
#if IS_ENABLED(CONFIG_NF_DEFRAG_IPV6)
	if (is_second)
		return READ_ONCE(net->nf.defrag_ipv6_users);
#endif
#if IS_ENABLED(CONFIG_NF_DEFRAG_IPV4)
	if (!is_second)
		return READ_ONCE(net->nf.defrag_ipv4_users);
#endif
	return false;
}

u32 whose_now(const struct reassembly *here, bool is_second)
{
	u32 datagrams = READ_ONCE(here->settings.datagrams);

	if (datagrams != TARN_REASSEMBLY_AUTO)
		return datagrams;
	return is_tracking(here->net, is_second) ? TARN_REASSEMBLY_ALL : TARN_REASSEMBLY_HOST;
}

bool is_ours(const struct reassembly *here, const struct sk_buff *skb, bool is_second)
{
	if (whose_now(here, is_second) == TARN_REASSEMBLY_ALL)
		return true;
	return is_second ? is_for_host_ipv6(here->net, skb) : is_for_host_ipv4(here->net, skb);
}
