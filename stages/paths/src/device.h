/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A device as the tracepoints of all namespaces show it. Of the kernel's own structures, only what is needed: where it lies is
 * found out when the program is loaded (CO-RE).
 */
#ifndef TARN_PATHS_DEVICE_H
#define TARN_PATHS_DEVICE_H

#include "shared.h"

/* include/linux/netdevice.h: the driver has taken the packet. */
#define NETDEV_TX_OK 0

struct net {
	__u64 net_cookie;
} __attribute__((preserve_access_index));

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

/* Whether a device that the kernel shows is the one that is meant. */
static __always_inline bool is_device(struct net_device *shown, const struct path_device *meant)
{
	return meant->index == (__u32)shown->ifindex && meant->namespace == shown->nd_net.net->net_cookie;
}

#endif
