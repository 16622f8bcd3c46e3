/* SPDX-License-Identifier: GPL-2.0 */
/*
 * In which of the host's networks a packet is: its VRF, its conntrack zone, which a template of nftables or tunnels says, and whether a
 * bridge passes it on.
 */
#ifndef TARN_REASSEMBLY_ZONE_H
#define TARN_REASSEMBLY_ZONE_H

#include <linux/netfilter_bridge.h>
#include <linux/skbuff.h>
#include <net/l3mdev.h>
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
#include <net/netfilter/nf_conntrack.h>
#include <net/netfilter/nf_conntrack_zones.h>
#endif

/* The index of the VRF's device, or 0. */
static inline u32 vrf_of(struct net_device *dev)
{
	if (likely(!netif_is_l3_master(dev) && !netif_is_l3_slave(dev)))
		return 0;
	return l3mdev_master_ifindex_rcu(dev);
}

static inline u16 zone_of(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	if (unlikely(skb_nfct(skb))) {
		enum ip_conntrack_info info;
		const struct nf_conn *connection = nf_ct_get(skb, &info);

		return nf_ct_zone_id(nf_ct_zone(connection), CTINFO2DIR(info));
	}
#endif
	return 0;
}

/* A packet's template, for another one to have; 0: none. */
static inline unsigned long take_zone(struct sk_buff *skb)
{
	unsigned long zone = 0;

#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	swap(zone, skb->_nfct);
#endif
	return zone;
}

static inline void put_zone(struct sk_buff *skb, unsigned long zone)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	skb->_nfct = zone;
#endif
}

/*
 * The word of a key that both families have, without the device: 16 bits of zone, and above them whether br_netfilter has the packet.
 * What it gets back has to be a bridged packet, and what is routed must not be one.
 */
static __always_inline u64 network_of(const struct sk_buff *skb)
{
	return (u64)nf_bridge_in_prerouting(skb) << 48 | (u64)zone_of(skb) << 32;
}

/*
 * The packet has been tracked, or is not to be: connection tracking does not reassemble it, and neither do we. (With NAT built in, it
 * does reassemble IPv4 packets that come over the loopback with their connection; those are reassembled when they are sent.)
 */
static inline bool is_tracked(const struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_NF_CONNTRACK)
	const struct nf_conn *connection;
	enum ip_conntrack_info info;

	if (likely(!skb->_nfct))
		return false;
	connection = nf_ct_get(skb, &info);
	return info == IP_CT_UNTRACKED || (connection && !nf_ct_is_template(connection));
#else
	return false;
#endif
}

#endif
