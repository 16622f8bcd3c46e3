// SPDX-License-Identifier: GPL-2.0
/*
 * See clients.h.
 *
 * A change is prepared in full, with all of its memory, before anything of it is carried out: a list of elements to be, which wait in
 * `pending`. It is carried out in two rounds. The first puts in what is new, and in place of what it replaces, and can be taken back
 * without memory. What is to go is replaced, too, by an element that is over. The second round frees what was replaced, and takes those
 * out, which cannot fail. Look-ups may see a part of a change for as long as that takes.
 *
 * An element is freed after a grace period (kfree_rcu), which needs nothing of this module. A reader that walks the table over several
 * messages holds a reference to it, and the netlink socket holds one to the module.
 */
#include <linux/bitops.h>
#include <linux/hash.h>
#include <linux/jiffies.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/socket.h>
#include <net/ipv6.h>

#include "clients.h"
#include "compat.h"

/* How often what is over is looked for. Until then it takes room, and nothing else. */
#define EXPIRY_INTERVAL (30 * HZ)
/* For so long a change may wait for its next part. */
#define PENDING_MOST (60 * HZ)
/* Elements of the table that are looked at without a pause. */
#define WALK_MOST 1024
/* An insertion that fails, for the table is about to become a larger one. */
#define ATTEMPTS 3

/* Before the system has started. */
#define LONG_OVER 1

struct client {
	struct rhash_head node;
	struct client_key key;
	u16 class;			/* TARN_CLASSES_NOBODY: stands in the place of one that goes, during a change */
	u8 origin;
	u64 until;			/* jiffies64; 0: for good; LONG_OVER */
	union {
		struct rcu_head rcu;
		struct {
			struct list_head list;	/* in `pending` */
		};
	};
	struct client *replaced;	/* by this one, as long as that may be taken back */
};

/*
 * Multiplicative hashing (Knuth, volume 3, section 6.4). The seed makes the multiplier another one: where a regular set of prefixes has
 * long chains, the table gets another seed. Prefixes are the administrator's: nobody else can have them share a bucket.
 */
static __always_inline u32 hash_key(const struct client_key *key, u32 seed)
{
	const u64 multiplier = (GOLDEN_RATIO_64 ^ ((u64)seed << 32 | seed)) | 1;
	const u32 *words = (const u32 *)key;
	u64 sum = ((u64)words[4] << 32 | words[0]) * multiplier;

	BUILD_BUG_ON(sizeof(*key) != 5 * sizeof(u32));
	if (key->family != NFPROTO_IPV4) {
		sum = (sum ^ sum >> 32 ^ words[1]) * multiplier;
		sum = (sum ^ sum >> 32 ^ words[2]) * multiplier;
		sum = (sum ^ sum >> 32 ^ words[3]) * multiplier;
	}
	return sum >> 32;
}

static u32 hash_of_key(const void *data, u32 length, u32 seed)
{
	return hash_key(data, seed);
}

static u32 hash_of_client(const void *data, u32 length, u32 seed)
{
	return hash_key(&((const struct client *)data)->key, seed);
}

/* With the length and the family in one word. */
static __always_inline int differs(struct rhashtable_compare_arg *argument, const void *element)
{
	const u32 *a = argument->key, *b = (const u32 *)&((const struct client *)element)->key;

	if ((a[0] ^ b[0]) | (a[4] ^ b[4]))
		return 1;
	return ((const struct client *)element)->key.family != NFPROTO_IPV4 && ((a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
}

static const struct rhashtable_params parameters = {
	.head_offset = offsetof(struct client, node),
	.key_offset = offsetof(struct client, key),
	.key_len = sizeof(struct client_key),
	.hashfn = hash_of_key,
	.obj_hashfn = hash_of_client,
	.obj_cmpfn = differs,
	.automatic_shrinking = true,
};

static bool is_over(const struct client *client)
{
	return client->until && time_after_eq64(get_jiffies_64(), client->until);
}

/* Network byte order. */
static __always_inline u32 prefix_mask(u32 length)
{
	return length ? (__force u32)htonl(~0U << (32 - length)) : 0;
}

/* The prefix of this length around an address. */
static void make_key(struct client_key *key, u8 family, const u32 *address, u32 length)
{
	*key = (struct client_key){ .length = length, .family = family };
	if (family == NFPROTO_IPV4)
		key->address[0] = address[0] & prefix_mask(length);
	else
		ipv6_addr_prefix((struct in6_addr *)key->address, (const struct in6_addr *)address, length);
}

/* Of an element, the class that holds now. */
static __always_inline struct client *find(struct clients *clients, const struct client_key *key)
{
	struct client *client = rhashtable_lookup(&clients->table, key, parameters);

	return client && !is_over(client) ? client : NULL;
}

/* The longest prefix, of at most so many bits, around an address. Wants RCU. */
static __always_inline struct client *find_longest4(struct clients *clients, const u32 *address, u32 most)
{
	u64 lengths = READ_ONCE(clients->lengths4) & GENMASK_ULL(most, 0);
	struct client_key key not_zeroed;
	struct client *client;

	while (lengths) {
		u32 length = fls64(lengths) - 1;

		/* Of IPv4, nobody looks at more. */
		key.address[0] = address[0] & prefix_mask(length);
		key.length = length;
		key.family = NFPROTO_IPV4;
		key.padding = 0;
		client = find(clients, &key);
		if (client)
			return client;
		lengths &= ~BIT_ULL(length);
	}
	return NULL;
}

static struct client *find_longest6(struct clients *clients, const u32 *address, u32 most)
{
	struct client_key key;
	struct client *client;
	int word;

	for (word = most / 64; word >= 0; word--) {
		u64 lengths = READ_ONCE(clients->lengths6[word]);

		if (word == most / 64)
			lengths &= GENMASK_ULL(most % 64, 0);
		while (lengths) {
			u32 bit = fls64(lengths) - 1;

			make_key(&key, NFPROTO_IPV6, address, 64 * word + bit);
			client = find(clients, &key);
			if (client)
				return client;
			lengths &= ~BIT_ULL(bit);
		}
	}
	return NULL;
}

u32 clients_look_up(struct clients *clients, u8 family, const struct in6_addr *address, u64 *until)
{
	const u32 *words = (const u32 *)address->s6_addr32;
	const struct client *client;

	client = family == NFPROTO_IPV4 ? find_longest4(clients, words, 32) : find_longest6(clients, words, 128);
	*until = client ? client->until : 0;
	return client ? READ_ONCE(client->class) : TARN_CLASSES_NOBODY;
}

u32 clients_remember(struct clients *clients, u8 family, const struct in6_addr *address, struct recent_client *place, u64 stamp)
{
	place->address = *address;
	place->stamp = stamp;
	place->class = clients_look_up(clients, family, address, &place->until);
	return place->class;
}

/* One more, or one less, has this length. */
static void count_length(struct clients *clients, const struct client_key *key, bool is_more)
{
	bool is_ipv6 = key->family != NFPROTO_IPV4;
	u64 *lengths = is_ipv6 ? &clients->lengths6[key->length / 64] : &clients->lengths4;
	u64 bit = BIT_ULL(key->length % 64);
	u32 *count = &clients->of_length[is_ipv6][key->length];

	*count += is_more ? 1 : -1;
	WRITE_ONCE(*lengths, *count ? *lengths | bit : *lengths & ~bit);
}

static bool is_placeholder(const struct client *client)
{
	return client->class == TARN_CLASSES_NOBODY;
}

static void count_client(struct clients *clients, const struct client *client, bool is_more)
{
	if (is_placeholder(client))
		return;
	clients->count += is_more ? 1 : -1;
	if (client->until)
		clients->timed += is_more ? 1 : -1;
	count_length(clients, &client->key, is_more);
	/* Behind what has changed. What nobody finds, a placeholder, changes nothing. */
	smp_store_release(&clients->generation, clients->generation + 1);
}

static void take_out(struct clients *clients, struct client *client)
{
	if (rhashtable_remove_fast(&clients->table, &client->node, parameters))
		return;
	count_client(clients, client, false);
	kfree_rcu(client, rcu);
}

/*
 * rhashtable_walk_start() leaves the walk at an element that may have been freed when the table has become another one meanwhile, and
 * counts in a chain what is not in it any more. Here the chain, or all of the table, comes once more: elements may come twice, and none
 * is left out.
 */
void clients_walk_resume(struct rhashtable_iter *iterator)
{
	bool had_one = iterator->p;

	if (rhashtable_walk_start_check(iterator) == -EAGAIN)
		iterator->p = NULL;
	if (had_one && !iterator->p)
		iterator->skip = 0;
}

/* Takes out all of the next elements, or those that are over; false: that was the end. */
static bool take_some_out(struct clients *clients, struct rhashtable_iter *iterator, bool all)
{
	struct client *client;
	u32 count = 0;

	clients_walk_resume(iterator);
	do {
		client = rhashtable_walk_next(iterator);
		/* -EAGAIN: the table has become another one, and the walk begins again. */
		if (!IS_ERR_OR_NULL(client) && (all || is_over(client)))
			take_out(clients, client);
	} while (client && ++count < WALK_MOST);
	rhashtable_walk_stop(iterator);
	return client;
}

static void take_many_out(struct clients *clients, bool all)
{
	struct rhashtable_iter iterator;

	rhashtable_walk_enter(&clients->table, &iterator);
	while (take_some_out(clients, &iterator, all))
		cond_resched();
	rhashtable_walk_exit(&iterator);
}

void clients_clear(struct clients *clients)
{
	while (clients->count)
		take_many_out(clients, true);
	clients->changes++;
}

static void look_again(struct clients *clients)
{
	if (clients->timed || clients->pending_port)
		queue_delayed_work(system_power_efficient_wq, &clients->expiry, EXPIRY_INTERVAL);
}

/* Whoever wants to change something meanwhile does not wait for all of it. */
static void expire(struct work_struct *work)
{
	struct clients *clients = container_of(work, struct clients, expiry.work);
	struct rhashtable_iter iterator;
	bool has_more;

	rhashtable_walk_enter(&clients->table, &iterator);
	do {
		mutex_lock(&clients->mutex);
		has_more = clients->timed && take_some_out(clients, &iterator, false);
		mutex_unlock(&clients->mutex);
		cond_resched();
	} while (has_more);
	rhashtable_walk_exit(&iterator);
	mutex_lock(&clients->mutex);
	if (clients->pending_port && time_after(jiffies, clients->pending_since + PENDING_MOST))
		clients_forget_pending(clients);
	look_again(clients);
	mutex_unlock(&clients->mutex);
}

struct clients *clients_new(void)
{
	struct clients *clients = kzalloc(sizeof(*clients), GFP_KERNEL_ACCOUNT);

	if (!clients)
		return NULL;
	if (rhashtable_init(&clients->table, &parameters)) {
		kfree(clients);
		return NULL;
	}
	kref_init(&clients->references);
	mutex_init(&clients->mutex);
	INIT_LIST_HEAD(&clients->pending);
	INIT_DELAYED_WORK(&clients->expiry, expire);
	clients->most = TARN_CLASSES_CLIENTS_DEFAULT;
	clients->generation = 1;
	return clients;
}

static void free_client(void *element, void *argument)
{
	kfree(element);
}

static void release(struct kref *references)
{
	struct clients *clients = container_of(references, struct clients, references);

	cancel_delayed_work_sync(&clients->expiry);
	clients_forget_pending(clients);
	rhashtable_free_and_destroy(&clients->table, free_client, NULL);
	kfree(clients);
}

void clients_put(struct clients *clients)
{
	kref_put(&clients->references, release);
}

void clients_forget_pending(struct clients *clients)
{
	struct client *client, *next;

	list_for_each_entry_safe(client, next, &clients->pending, list) {
		kfree(client);
		cond_resched();
	}
	INIT_LIST_HEAD(&clients->pending);
	clients->pending_count = 0;
	clients->pending_port = 0;
}

void clients_begin(struct clients *clients, u32 port)
{
	clients_forget_pending(clients);
	clients->pending_port = port;
	clients->pending_most = clients->most;
	look_again(clients);
}

/* The key of what netlink has given; false: it is none. */
static bool read_key(const struct tarn_classes_client *given, struct client_key *key)
{
	u32 address[4];

	memcpy(address, given->address, sizeof(address));
	if (given->family == AF_INET) {
		if (given->length > 32 || address[1] || address[2] || address[3])
			return false;
		make_key(key, NFPROTO_IPV4, address, given->length);
	} else if (given->family == AF_INET6) {
		if (given->length > 128)
			return false;
		make_key(key, NFPROTO_IPV6, address, given->length);
	} else {
		return false;
	}
	return !memcmp(key->address, address, sizeof(address));
}

int clients_prepare(struct clients *clients, const struct tarn_classes_client *given)
{
	struct client_key key;
	struct client *client;

	if (!read_key(given, &key) || given->origin > U8_MAX || (given->class >= TARN_CLASSES_MOST && given->class != TARN_CLASSES_NOBODY))
		return -EINVAL;
	/* All that is there may go, and as many come as there may be. */
	if (clients->pending_count >= (u64)clients->count + clients->pending_most)
		return -ENOSPC;
	client = kzalloc(sizeof(*client), GFP_KERNEL_ACCOUNT);
	if (!client)
		return -ENOMEM;
	client->key = key;
	client->class = given->class;
	client->origin = given->origin;
	if (is_placeholder(client))
		client->until = LONG_OVER;
	else if (given->timeout)
		client->until = get_jiffies_64() + max(nsecs_to_jiffies64(given->timeout), 1ULL);
	list_add_tail(&client->list, &clients->pending);
	clients->pending_count++;
	clients->pending_since = jiffies;
	return 0;
}

static int try_to_put_in(struct clients *clients, struct client *client)
{
	client->replaced = rhashtable_lookup_fast(&clients->table, &client->key, parameters);
	if (client->replaced)
		return rhashtable_replace_fast(&clients->table, &client->replaced->node, &client->node, parameters);
	if (is_placeholder(client))	/* there is nothing to take out */
		return 0;
	return rhashtable_insert_fast(&clients->table, &client->node, parameters);
}

/* Puts an element in, for the one that the table has of its key, over or not. */
static int put_in(struct clients *clients, struct client *client)
{
	int attempt, error = try_to_put_in(clients, client);

	/* It may have become fuller than it grows behind; the work that has it grow may wait for memory, which we may not. */
	for (attempt = 0; attempt < ATTEMPTS && (error == -EBUSY || error == -ENOMEM); attempt++) {
		flush_work(&clients->table.run_work);
		error = try_to_put_in(clients, client);
	}
	if (error)
		return error;
	/* In this order, that its length is not without any for a moment. */
	count_client(clients, client, true);
	if (client->replaced)
		count_client(clients, client->replaced, false);
	return 0;
}

/* Takes back put_in(). */
static void put_back(struct clients *clients, struct client *client)
{
	if (client->replaced) {
		rhashtable_replace_fast(&clients->table, &client->node, &client->replaced->node, parameters);
		count_client(clients, client->replaced, true);
	} else if (!is_placeholder(client)) {
		rhashtable_remove_fast(&clients->table, &client->node, parameters);
	}
	count_client(clients, client, false);
}

/* The first round. */
static int put_all_in(struct clients *clients)
{
	u32 before = clients->count;
	struct client *client;
	int error = 0;

	list_for_each_entry(client, &clients->pending, list) {
		error = put_in(clients, client);
		if (error)
			break;
		cond_resched();
	}
	if (!error && clients->count > max(before, clients->pending_most))
		error = -ENOSPC;
	if (!error)
		return 0;
	/* From where it failed, or from the end. */
	list_for_each_entry_continue_reverse(client, &clients->pending, list) {
		put_back(clients, client);
		cond_resched();
	}
	return error;
}

/* The second round. An element that a later one of the change has replaced is freed by that one. */
static void free_replaced(struct clients *clients)
{
	struct client *client, *next, *replaced;

	list_for_each_entry_safe(client, next, &clients->pending, list) {
		list_del(&client->list);
		replaced = client->replaced;
		client->replaced = NULL;
		if (replaced)
			kfree_rcu(replaced, rcu);
		if (is_placeholder(client) && !replaced)
			kfree(client);
		else if (is_placeholder(client) && !rhashtable_remove_fast(&clients->table, &client->node, parameters))
			kfree_rcu(client, rcu);
		cond_resched();
	}
	clients->pending_count = 0;
}

int clients_commit(struct clients *clients)
{
	int error;

	/* What is over is no reason to refuse anything. */
	if (clients->timed && (u64)clients->count + clients->pending_count > clients->pending_most)
		take_many_out(clients, false);
	error = put_all_in(clients);
	if (error) {
		/* Readers of the table may have seen them. */
		synchronize_rcu();
		clients_forget_pending(clients);
		return error;
	}
	free_replaced(clients);
	clients->pending_port = 0;
	clients->most = clients->pending_most;
	clients->changes++;
	look_again(clients);
	return 0;
}

static void describe(const struct client *client, struct tarn_classes_client *found)
{
	u64 now = get_jiffies_64();

	*found = (struct tarn_classes_client){
		.family = client->key.family == NFPROTO_IPV4 ? AF_INET : AF_INET6,
		.length = client->key.length,
		.class = client->class,
		.origin = client->origin,
	};
	memcpy(found->address, client->key.address, sizeof(found->address));
	if (client->until)
		found->timeout = jiffies64_to_nsecs(max(client->until, now + 1) - now);
}

bool clients_find(struct clients *clients, struct tarn_classes_client *found)
{
	struct client *client = NULL;
	struct client_key key;

	if (!read_key(found, &key))
		return false;
	rcu_read_lock();
	if (key.family == NFPROTO_IPV4)
		client = find_longest4(clients, key.address, key.length);
	else
		client = find_longest6(clients, key.address, key.length);
	if (client)
		describe(client, found);
	rcu_read_unlock();
	return client;
}

bool clients_describe(const void *element, struct tarn_classes_client *found)
{
	const struct client *client = element;

	if (is_over(client))
		return false;
	describe(client, found);
	return true;
}
