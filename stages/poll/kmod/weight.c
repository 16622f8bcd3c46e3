// SPDX-License-Identifier: GPL-2.0
/* See weight.h; main.c tells how long what lives. */
#include <linux/hashtable.h>
#include <linux/rtnetlink.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "published.h"
#include "weight.h"

/* By the address of the device. */
static DEFINE_HASHTABLE(devices, 6);
static unsigned int count;

static struct weight *find(const struct net_device *device)
{
	struct weight *here;

	hash_for_each_possible_rcu(devices, here, node, (unsigned long)device, lockdep_rtnl_is_held()) {
		if (here->device == device)
			return here;
	}
	return NULL;
}

/* Whether a NAPI has a weight that it has from us. */
static bool is_ours(struct weight *here, const struct napi_struct *napi)
{
	int weight = READ_ONCE(napi->weight);

	if (!xa_load(&here->napis, weight_key(napi)))
		return false;
	return here->rule == TARN_POLL_PUBLISHED ? published_can_be(weight) : weight == here->weight;
}

/* Gives a device's NAPIs the kernel's weight back, and forgets the device. */
static void drop(struct weight *here)
{
	struct napi_struct *napi;

	hash_del_rcu(&here->node);
	count--;
	/* A poll that ends now may have found the device, and have a weight to write still. */
	if (here->rule == TARN_POLL_PUBLISHED)
		synchronize_net();
	rcu_read_lock();
	list_for_each_entry_rcu(napi, &here->device->napi_list, dev_list) {
		if (is_ours(here, napi))
			WRITE_ONCE(napi->weight, NAPI_POLL_WEIGHT);
	}
	rcu_read_unlock();
	xa_destroy(&here->napis);
	kfree_rcu(here, rcu);
}

/* The first key above another one, of a NAPI that has the kernel's weight; 0 when there is none. Without a number it only sends. */
static unsigned long next_untouched(const struct weight *here, unsigned long after)
{
	struct napi_struct *napi;
	unsigned long first = 0;

	rcu_read_lock();
	list_for_each_entry_rcu(napi, &here->device->napi_list, dev_list) {
		unsigned long key = weight_key(napi);

		if (key > after && (!first || key < first) && READ_ONCE(napi->napi_id) &&
		    READ_ONCE(napi->weight) == NAPI_POLL_WEIGHT)
			first = key;
	}
	rcu_read_unlock();
	return first;
}

static bool is_listed(const struct weight *here, unsigned long key)
{
	struct napi_struct *napi;
	bool found = false;

	rcu_read_lock();
	list_for_each_entry_rcu(napi, &here->device->napi_list, dev_list)
		found |= weight_key(napi) == key;
	rcu_read_unlock();
	return found;
}

/* Takes on what has the kernel's weight, and forgets what is gone. The list may change meanwhile: keys are gone through in order. */
static int take_on(struct weight *here)
{
	unsigned long key = 0;
	void *entry;
	int error;

	xa_for_each(&here->napis, key, entry) {
		if (!is_listed(here, key))
			xa_erase(&here->napis, key);
	}
	for (key = next_untouched(here, 0); key; key = next_untouched(here, key)) {
		error = xa_err(xa_store(&here->napis, key, xa_mk_value(1), GFP_KERNEL));
		if (error)
			return error;
	}
	return 0;
}

static void write_weights(struct weight *here)
{
	struct napi_struct *napi;

	if (here->rule != TARN_POLL_FIXED)
		return;
	rcu_read_lock();
	list_for_each_entry_rcu(napi, &here->device->napi_list, dev_list) {
		if (READ_ONCE(napi->weight) == NAPI_POLL_WEIGHT && xa_load(&here->napis, weight_key(napi)))
			WRITE_ONCE(napi->weight, here->weight);
	}
	rcu_read_unlock();
}

static struct weight *begin(struct net_device *device, u32 rule, u32 weight)
{
	struct weight *here;

	if (count >= TARN_POLL_DEVICES)
		return ERR_PTR(-ENOSPC);
	here = kzalloc(sizeof(*here), GFP_KERNEL);
	if (!here)
		return ERR_PTR(-ENOMEM);
	here->device = device;
	here->rule = rule;
	here->weight = weight;
	xa_init(&here->napis);
	hash_add_rcu(devices, &here->node, (unsigned long)device);
	count++;
	return here;
}

int weight_set(struct net_device *device, u32 rule, u32 weight)
{
	struct weight *here = find(device);
	int error;

	ASSERT_RTNL();
	if (here && (here->rule != rule || here->weight != weight)) {
		drop(here);
		here = NULL;
	}
	if (rule == TARN_POLL_FIXED && weight == NAPI_POLL_WEIGHT)
		return 0;
	if (!here)
		here = begin(device, rule, weight);
	if (IS_ERR(here))
		return PTR_ERR(here);
	error = take_on(here);
	if (error) {
		drop(here);
		return error;
	}
	write_weights(here);
	return 0;
}

bool weight_stop(const struct net *net)
{
	struct hlist_node *next;
	struct weight *here;
	bool any = false;
	int bucket;

	rtnl_lock();
	hash_for_each_safe(devices, bucket, next, here, node) {
		if (dev_net(here->device) == net) {
			drop(here);
			any = true;
		}
	}
	rtnl_unlock();
	return any;
}

bool weight_is_published(void)
{
	struct weight *here;
	bool any = false;
	int bucket;

	rtnl_lock();
	hash_for_each(devices, bucket, here, node)
		any |= here->rule == TARN_POLL_PUBLISHED;
	rtnl_unlock();
	return any;
}

int weight_list(const struct net *net, struct tarn_poll_napi *list, int most)
{
	struct napi_struct *napi;
	struct weight *here;
	int bucket, length = -ENOENT;

	rtnl_lock();
	hash_for_each(devices, bucket, here, node) {
		if (dev_net(here->device) != net)
			continue;
		length = max(length, 0);
		rcu_read_lock();
		list_for_each_entry_rcu(napi, &here->device->napi_list, dev_list) {
			if (length >= most)
				break;
			if (!is_ours(here, napi))
				continue;
			list[length++] = (struct tarn_poll_napi){
				.device = here->device->ifindex,
				.napi = READ_ONCE(napi->napi_id),
				.weight = READ_ONCE(napi->weight),
				.rule = here->rule,
			};
		}
		rcu_read_unlock();
	}
	rtnl_unlock();
	return length;
}

bool weight_of_published(const struct napi_struct *napi)
{
	struct weight *here = find(napi->dev);

	return here && here->rule == TARN_POLL_PUBLISHED && xa_load(&here->napis, weight_key(napi));
}

static int device_changes(struct notifier_block *block, unsigned long event, void *data)
{
	struct weight *here;

	if (event == NETDEV_UNREGISTER) {
		here = find(netdev_notifier_info_to_dev(data));
		if (here)
			drop(here);
	}
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = device_changes };

int weight_init(void)
{
	return register_netdevice_notifier(&notifier);
}

void weight_exit(void)
{
	unregister_netdevice_notifier(&notifier);
}
