/* SPDX-License-Identifier: GPL-2.0 */
/* Room for packets that wait: a class's cap, and the memory that all classes share. Wants classes.lock held. */
#ifndef TARN_CLASSES_ROOM_H
#define TARN_CLASSES_ROOM_H

#include "classes.h"

/*
 * Makes room for a packet of this class, and reserves its memory; false when there is none. What is dropped for its sake goes
 * to `dropped`, and is counted, as the packet itself is when there is no room.
 */
bool room_make(struct classes *classes, struct client_class *class, const struct held *held, struct list_head *dropped);

#endif
