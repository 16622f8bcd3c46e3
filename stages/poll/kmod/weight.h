/* SPDX-License-Identifier: GPL-2.0 */
/* The devices whose NAPIs have another weight than the kernel's. */
#ifndef TARN_POLL_WEIGHT_H
#define TARN_POLL_WEIGHT_H

#include <linux/netdevice.h>
#include <linux/types.h>

#include "uapi.h"

/* A device, and what its NAPIs get. */
struct weight {
	struct hlist_node node;		/* in the table */
	struct rcu_head rcu;
	const struct net_device *device;	/* compared only, but under RTNL */
	struct xarray napis;		/* those that had the kernel's weight, by weight_key() */
	u32 rule;			/* enum tarn_poll_rule */
	u32 weight;			/* of TARN_POLL_FIXED */
};

/*
 * A NAPI in the table: its address, which is compared only. Its number changes while it lives, since 6.13 each time that it is disabled
 * and enabled, and its weight does not.
 */
static inline unsigned long weight_key(const struct napi_struct *napi)
{
	return (unsigned long)napi / __alignof__(*napi);
}

int weight_init(void);

/* Gives all NAPIs their weight back, and ends. */
void weight_exit(void);

/* Sets the weight of a device's NAPIs; the kernel's own ends what was set. Under RTNL. */
int weight_set(struct net_device *device, u32 rule, u32 weight);

/* Gives all NAPIs of a namespace's devices their weight back. Returns whether there were any such devices. Takes RTNL. */
bool weight_stop(const struct net *net);

/* Whether a device follows the published rule. Takes RTNL. */
bool weight_is_published(void);

/* Writes down the NAPIs of a namespace, at most `most`. Returns how many, or -ENOENT where no device of it is ours. Takes RTNL. */
int weight_list(const struct net *net, struct tarn_poll_napi *list, int most);

/* Whether a NAPI's weight follows the published rule. Under RCU. */
bool weight_of_published(const struct napi_struct *napi);

#endif
