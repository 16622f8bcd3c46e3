/* SPDX-License-Identifier: GPL-2.0 */
/* Whose datagrams are reassembled here: asked once a datagram, of the first fragment that arrives. */
#ifndef TARN_REASSEMBLY_WHOSE_H
#define TARN_REASSEMBLY_WHOSE_H

#include <linux/skbuff.h>

#include "reassembly.h"

/* Whether the datagram is for this host. Under rcu_read_lock(). */
bool is_for_host_ipv4(struct net *net, const struct sk_buff *skb);
bool is_for_host_ipv6(struct net *net, const struct sk_buff *skb);

/* Whose datagrams are reassembled now: enum tarn_reassembly_datagrams, but not AUTO. */
u32 whose_now(const struct reassembly *here, bool is_second);

/* Whether it is reassembled here, by the settings. */
bool is_ours(const struct reassembly *here, const struct sk_buff *skb, bool is_second);

#endif
