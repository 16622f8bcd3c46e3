/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which client is of which class: prefixes of addresses, of which the longest that a client is in decides.
 *
 * They are in a hash table by address and length. A look-up asks for each length that occurs, the longest first: two or three as a rule,
 * however many clients there are. An element that is over is taken for none, and goes away a while later.
 *
 * The table of a namespace is there as long as something runs or has a class in it. Look-ups are under RCU. Whoever changes or reads it
 * otherwise holds a reference, and its mutex.
 */
#ifndef TARN_CLASSES_CLIENTS_H
#define TARN_CLASSES_CLIENTS_H

#include <linux/hash.h>
#include <linux/in6.h>
#include <linux/jiffies.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/netfilter.h>
#include <linux/rhashtable.h>
#include <linux/workqueue.h>
#include <net/ipv6.h>

#include <uapi.h>

#define CLIENT_LENGTHS 129

/* A key: the prefix, with zeros behind it, and its length and family. */
struct client_key {
	u32 address[4];			/* network byte order; IPv4 has the first one alone */
	u8 length;			/* bits */
	u8 family;			/* NFPROTO_ */
	u16 padding;			/* 0 */
};

struct clients {
	struct kref references;
	struct mutex mutex;
	struct rhashtable table;	/* struct client */
	u32 count, most;
	u64 changes;			/* so far */
	u32 timed;			/* of `count`, those that will be over */
	u32 of_length[2][CLIENT_LENGTHS];	/* IPv4, IPv6: how many have it */
	u64 lengths4;			/* bit N: some have length N. Read without the mutex, as the next one */
	u64 lengths6[3];
	u64 generation;			/* from 1; another one after each change that look-ups see. Read without the mutex, too */
	struct list_head pending;	/* struct client: what will be carried out as a whole */
	u32 pending_count;
	u32 pending_most;		/* `most`, once it is carried out */
	u32 pending_port;		/* of the netlink socket that has begun it; 0: nobody has */
	unsigned long pending_since;	/* jiffies: when its last part came */
	struct delayed_work expiry;
};

/*
 * Who has asked lately, and of which class they are: saves the look-up in the table. It belongs to a service, and wants its lock.
 * A place is taken by the address, without a secret: who takes another's place has it looked up in the table.
 */
#define RECENT_BITS 11

struct recent_client {
	struct in6_addr address;
	u64 stamp;			/* see recent_stamp(); 0: nobody is here */
	u64 until;			/* jiffies64: from then on it has to be looked up again; 0: never */
	u32 class;			/* or TARN_CLASSES_NOBODY */
};

struct recent {
	struct recent_client client[1 << RECENT_BITS];
};

/* A new table, with one reference, or NULL. */
struct clients *clients_new(void);

/* Gives up a reference; with the last one the table goes. May sleep. */
void clients_put(struct clients *clients);

/* The class of a client by the table, or TARN_CLASSES_NOBODY, and until when it is that: see struct recent_client. Wants RCU. */
u32 clients_look_up(struct clients *clients, u8 family, const struct in6_addr *address, u64 *until);

/* The same, of one that has not asked lately: who now has. */
u32 clients_remember(struct clients *clients, u8 family, const struct in6_addr *address, struct recent_client *place, u64 stamp);

/* Of what was found in the table as it is now. The family is in it, as addresses of IPv4 are some of IPv6, too. */
static __always_inline u64 recent_stamp(const struct clients *clients, u8 family)
{
	/* Before the table is read: whatever is found while it changes is of the generation that ends with that. */
	return smp_load_acquire(&clients->generation) << 1 | (family != NFPROTO_IPV4);
}

/* The class of a client, or TARN_CLASSES_NOBODY. Wants RCU, and what protects `recent`. */
static __always_inline u32 clients_class(struct clients *clients, struct recent *recent, u8 family, const struct in6_addr *address)
{
	const u32 *words = (const u32 *)address->s6_addr32;
	u32 folded = family == NFPROTO_IPV4 ? words[0] : words[0] ^ words[1] ^ words[2] ^ words[3];
	struct recent_client *place = &recent->client[hash_32(folded, RECENT_BITS)];
	u64 stamp = recent_stamp(clients, family);

	if (likely(place->stamp == stamp && ipv6_addr_equal(&place->address, address)) &&
	    (!place->until || !time_after_eq64(get_jiffies_64(), place->until)))
		return place->class;
	return clients_remember(clients, family, address, place, stamp);
}

/* Drops what is pending. */
void clients_forget_pending(struct clients *clients);

/* Begins a change, for the socket of this port. What was pending is dropped. */
void clients_begin(struct clients *clients, u32 port);

/* Has this wait for clients_commit(): -EINVAL, -ENOMEM, or -ENOSPC when more is pending than the table may have. */
int clients_prepare(struct clients *clients, const struct tarn_classes_client *client);

/* Carries out what is pending, all of it or nothing: -ENOSPC when it is too much, -ENOMEM. Then nothing is pending. */
int clients_commit(struct clients *clients);

/* Takes all out. */
void clients_clear(struct clients *clients);

/* The longest prefix around this one that has a class, itself at the most: fills `client`; false: none. */
bool clients_find(struct clients *clients, struct tarn_classes_client *client);

/* Begins a part of a walk of the table, or goes on with it, in place of rhashtable_walk_start(). */
void clients_walk_resume(struct rhashtable_iter *iterator);

/* For dumps: what a walk of the table has found. */
bool clients_describe(const void *element, struct tarn_classes_client *client);

#endif
