/* SPDX-License-Identifier: GPL-2.0 */
/* What differs between the kernels that the module is built for, 6.1 and newer. */
#ifndef TARN_REASSEMBLY_COMPAT_H
#define TARN_REASSEMBLY_COMPAT_H

#include <linux/skbuff.h>
#include <linux/timer.h>
#include <linux/version.h>
#include <net/inet_dscp.h>
#include <net/ip.h>
#include <net/route.h>

#ifndef timer_container_of
#define timer_container_of from_timer
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define timer_shutdown_sync del_timer_sync
#endif

/* Debian's kernels have every variable zeroed first (INIT_STACK_ALL_ZERO); where that shows, and nothing needs it: */
#if __has_attribute(__uninitialized__)
#define not_zeroed __attribute__((__uninitialized__))
#else
#define not_zeroed
#endif

/* Which clock skb->tstamp is of. */
static inline u8 stamp_clock(const struct sk_buff *skb)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
	return skb->mono_delivery_time;
#else
	return skb->tstamp_type;
#endif
}

static inline void set_stamp_clock(struct sk_buff *skb, u8 clock)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 11, 0)
	skb->mono_delivery_time = clock;
#else
	skb->tstamp_type = clock;
#endif
}

/* Routes a packet that was received by `dev`. Returns whether there is a route, which the packet then refers to. */
static inline bool route_input(struct sk_buff *skb, const struct iphdr *ip, struct net_device *dev)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
	return !ip_route_input_noref(skb, ip->daddr, ip->saddr, ip->tos, dev);
#else
	return !ip_route_input_noref(skb, ip->daddr, ip->saddr, ip4h_dscp(ip), dev);
#endif
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 9, 0)
#define SKB_DROP_REASON_FRAG_REASM_TIMEOUT SKB_DROP_REASON_NOT_SPECIFIED
#endif

#endif
