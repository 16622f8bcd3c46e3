// SPDX-License-Identifier: GPL-2.0
/* See netlink_clients.h. Commands come one at a time, and so do the parts of dumps. */
#include <linux/slab.h>
#include <net/sock.h>

#include "clients.h"
#include "netlink.h"
#include "netlink_clients.h"
#include "services.h"

/* Elements that are looked at without a pause. */
#define WALK_MOST 1024
#define STEPS (TARN_CLASSES_BEGIN | TARN_CLASSES_COMMIT)
/* As many as an attribute can hold. */
#define CLIENTS_MOST ((U16_MAX - NLA_HDRLEN) / sizeof(struct tarn_classes_client))

const struct nla_policy clients_policy[TARN_CLASSES_A_MAX + 1] = {
	[TARN_CLASSES_A_CLIENTS] = { .type = NLA_BINARY },
	[TARN_CLASSES_A_STEP] = NLA_POLICY_MASK(NLA_U32, STEPS),
	[TARN_CLASSES_A_MOST] = NLA_POLICY_MIN(NLA_U32, 1),
};

/* How many clients a message has; -EINVAL. */
static int count_in(struct genl_info *info)
{
	const struct nlattr *given = info->attrs[TARN_CLASSES_A_CLIENTS];

	if (!given)
		return 0;
	if (nla_len(given) % sizeof(struct tarn_classes_client)) {
		NL_SET_ERR_MSG_ATTR(info->extack, given, "clients: not an array of struct tarn_classes_client");
		return -EINVAL;
	}
	return nla_len(given) / sizeof(struct tarn_classes_client);
}

/* Attributes are aligned to four bytes only. */
static struct tarn_classes_client client_in(struct genl_info *info, int index)
{
	struct tarn_classes_client client;

	memcpy(&client, nla_data(info->attrs[TARN_CLASSES_A_CLIENTS]) + index * sizeof(client), sizeof(client));
	return client;
}

/* Has all of a message wait, or nothing of what waited so far. */
static int prepare(struct clients *clients, struct genl_info *info, int count)
{
	int i, error = 0;

	for (i = 0; i < count && !error; i++) {
		struct tarn_classes_client client = client_in(info, i);

		error = clients_prepare(clients, &client);
		cond_resched();
	}
	if (error == -EINVAL)
		NL_SET_ERR_MSG(info->extack, "clients: no prefix, or no class");
	if (error)
		clients_forget_pending(clients);
	return error;
}

int do_change_clients(struct sk_buff *skb, struct genl_info *info)
{
	const struct nlattr *step = info->attrs[TARN_CLASSES_A_STEP], *most = info->attrs[TARN_CLASSES_A_MOST];
	u32 steps = step ? nla_get_u32(step) : STEPS;
	int error, count = count_in(info);
	struct clients *clients;

	if (count < 0)
		return count;
	if (most && nla_get_u32(most) > TARN_CLASSES_CLIENTS_MOST)
		return -EINVAL;
	clients = services_clients(genl_info_net(info), true);
	if (!clients)
		return -ENOMEM;
	mutex_lock(&clients->mutex);
	if (steps & TARN_CLASSES_BEGIN)
		clients_begin(clients, info->snd_portid);
	if (clients->pending_port != info->snd_portid) {
		NL_SET_ERR_MSG(info->extack, "clients: this change has not begun, or another one has since");
		mutex_unlock(&clients->mutex);
		return -EBUSY;
	}
	if (most)
		clients->pending_most = nla_get_u32(most);
	error = prepare(clients, info, count);
	if (!error && steps & TARN_CLASSES_COMMIT)
		error = clients_commit(clients);
	mutex_unlock(&clients->mutex);
	return error;
}

int do_find_client(struct sk_buff *skb, struct genl_info *info)
{
	struct clients *clients = services_clients(genl_info_net(info), false);
	struct tarn_classes_client client;
	struct sk_buff *answer;
	void *header;

	if (count_in(info) != 1)
		return -EINVAL;
	client = client_in(info, 0);
	if (!clients || !clients_find(clients, &client))
		return -ENOENT;
	answer = new_answer(info, nla_total_size(sizeof(client)), &header);
	if (!answer)
		return -ENOMEM;
	if (nla_put(answer, TARN_CLASSES_A_CLIENTS, sizeof(client), &client)) {
		nlmsg_free(answer);
		return -EMSGSIZE;
	}
	genlmsg_end(answer, header);
	return genlmsg_reply(answer, info);
}

int do_clear_clients(struct sk_buff *skb, struct genl_info *info)
{
	struct clients *clients = services_clients(genl_info_net(info), false);

	if (!clients)
		return 0;
	mutex_lock(&clients->mutex);
	clients_clear(clients);
	mutex_unlock(&clients->mutex);
	return 0;
}

/* A dump, over several messages. */
struct walk {
	struct clients *clients;	/* with a reference; NULL: there are none */
	struct rhashtable_iter iterator;
};

int clients_dump_start(struct netlink_callback *callback)
{
	struct clients *clients = services_clients(sock_net(callback->skb->sk), false);
	struct walk *walk = kzalloc(sizeof(*walk), GFP_KERNEL);

	if (!walk)
		return -ENOMEM;
	if (clients) {
		kref_get(&clients->references);
		walk->clients = clients;
		rhashtable_walk_enter(&clients->table, &walk->iterator);
	}
	callback->args[0] = (long)walk;
	return 0;
}

/* Writes some of what comes next; false: that was the end. Attributes are aligned to four bytes only. */
static bool fill_some(struct walk *walk, u8 *array, u32 most, u32 *count)
{
	struct tarn_classes_client client;
	void *element;
	u32 seen;

	clients_walk_resume(&walk->iterator);
	element = rhashtable_walk_peek(&walk->iterator);
	for (seen = 0; element && *count < most && seen < WALK_MOST; seen++) {
		/* -EAGAIN: the table has become another one, and the walk begins again. */
		if (!IS_ERR(element) && clients_describe(element, &client))
			memcpy(array + (*count)++ * sizeof(client), &client, sizeof(client));
		element = rhashtable_walk_next(&walk->iterator);
	}
	rhashtable_walk_stop(&walk->iterator);
	return element;
}

/* Writes an array of what comes next. What did not fit comes first the next time. */
static u32 fill(struct walk *walk, u8 *array, u32 most)
{
	u32 count = 0;

	while (fill_some(walk, array, most, &count) && count < most)
		cond_resched();
	return count;
}

int clients_dump(struct sk_buff *skb, struct netlink_callback *callback)
{
	struct walk *walk = (struct walk *)callback->args[0];
	const size_t size = sizeof(struct tarn_classes_client);
	struct nlattr *array;
	void *header;
	u32 count;

	if (!walk->clients)
		return 0;
	header = genlmsg_put(skb, NETLINK_CB(callback->skb).portid, callback->nlh->nlmsg_seq, &netlink_family, NLM_F_MULTI,
			     TARN_CLASSES_CMD_GET_CLIENTS);
	if (!header)
		return -EMSGSIZE;
	/* Another number after each change: a list that is not of one moment says so. */
	callback->seq = (u32)READ_ONCE(walk->clients->changes) ?: 1;
	genl_dump_check_consistent(callback, header);
	array = nla_nest_start_noflag(skb, TARN_CLASSES_A_CLIENTS);
	if (!array)
		return -EMSGSIZE;
	count = fill(walk, skb_tail_pointer(skb), min_t(u32, skb_tailroom(skb) / size, CLIENTS_MOST));
	if (!count) {
		genlmsg_cancel(skb, header);
		return 0;
	}
	skb_put(skb, count * size);
	nla_nest_end(skb, array);
	genlmsg_end(skb, header);
	return skb->len;
}

int clients_dump_done(struct netlink_callback *callback)
{
	struct walk *walk = (struct walk *)callback->args[0];

	if (walk->clients) {
		rhashtable_walk_exit(&walk->iterator);
		clients_put(walk->clients);
	}
	kfree(walk);
	return 0;
}
