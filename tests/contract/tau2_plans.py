"""What sessions do in tau2's airline and retail: plans of valid calls, made from the real database by dice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from agentspec.calls import ToolCall

Plan = list[list[ToolCall]]
"""The calls of each turn."""

DATES = [f"2024-05-{day}" for day in range(16, 29)]
DOMAINS = ("airline", "retail")


def plans(domain: str, db: Any, seed: int, turns: Sequence[int], *, disjoint: bool) -> list[Plan]:
    """Plans of so many turns; the last one mostly writes. Disjoint: no two touch the same customer; else all crowd
    around one."""
    dice = random.Random(f"{domain} {seed}")
    customers = dice.sample(_customers(domain, db), 2 * len(turns))
    kind = {"airline": _Airline, "retail": _Retail}[domain]
    made = []
    for number, length in enumerate(turns):
        users = customers[2 * number : 2 * number + 2] if disjoint else customers[:1]
        session = kind(db, random.Random(dice.random()), users, alone=disjoint)
        made.append(session.plan(length, writes=0.9 if number == len(turns) - 1 else 0.15))
    return made


def _customers(domain: str, db: Any) -> list[Any]:
    """Those with enough to cancel, to change and to give back, and with a credit card."""
    users = [user for user in db.users.values() if _card(user)]
    if domain == "airline":
        return [user for user in users if len(user.reservations) > 3]
    return [user for user in users if {"pending", "delivered"} <= {db.orders[order].status for order in user.orders}]


def _name(user: Any) -> dict[str, str]:
    return {"first_name": user.name.first_name, "last_name": user.name.last_name}


def _card(user: Any) -> str | None:
    return next((id for id, method in user.payment_methods.items() if method.source == "credit_card"), None)


class _Customers:
    """Reads and writes around some customers. `alone`, each thing is changed once, so that every change succeeds; in a
    crowd a few things are changed again and again."""

    def __init__(self, db: Any, dice: random.Random, users: Sequence[Any], *, alone: bool) -> None:
        self.db, self.dice, self.users, self.alone = db, dice, users, alone
        self.changes = self._changes()

    def plan(self, turns: int, writes: float) -> Plan:
        """Mostly reads; a write is looked at again in the same turn or in the next."""
        made: Plan = []
        while len(made) < turns:
            pair = next(self.changes, None) if self.dice.random() < writes else None
            if pair is None:
                made.append([self.read() for _ in range(self.dice.choice([1, 1, 2]))])
            else:
                made += self.dice.choice([[[*pair]], [[*reversed(pair)]], [[pair[0]], [pair[1]]]])
        if self.dice.random() < 0.25:
            made.append([ToolCall("transfer_to_human_agents", {"summary": "beyond my tools"})])
        return made

    def read(self) -> ToolCall:
        """Something that many look at, or one of the customers' own."""
        raise NotImplementedError

    def _changes(self) -> Iterator[tuple[ToolCall, ToolCall]]:
        while True:
            for user in self._shuffled(self.users):
                yield from self._shuffled([*self.pairs(user)])
            if self.alone:
                return

    def pairs(self, user: Any) -> Iterator[tuple[ToolCall, ToolCall]]:
        """Writes, each with a read that shows it."""
        raise NotImplementedError

    def _few(self, ids: Sequence[str]) -> Sequence[str]:
        return ids if self.alone else ids[:3]

    def _calculate(self) -> ToolCall:
        return ToolCall("calculate", {"expression": f"{self.dice.randrange(5)} * 12.5"})

    def _shuffled(self, items: Sequence[Any]) -> list[Any]:
        return self.dice.sample(items, len(items))


class _Retail(_Customers):
    def read(self) -> ToolCall:
        user = self.dice.choice(self.users)
        product = self.dice.choice(list(self.db.products)[:4])
        moving = [
            ToolCall("get_user_details", {"user_id": user.user_id}),
            *[ToolCall("get_order_details", {"order_id": order}) for order in self._few(user.orders)],
        ]
        return self.dice.choice(
            [
                *moving * 3,
                ToolCall("find_user_id_by_email", {"email": user.email}),
                ToolCall("find_user_id_by_name_zip", _name(user) | {"zip": user.address.zip}),
                ToolCall("get_product_details", {"product_id": product}),
                ToolCall("list_all_product_types", {}),
                self._calculate(),
            ]
        )

    def pairs(self, user: Any) -> Iterator[tuple[ToolCall, ToolCall]]:
        me = {"user_id": user.user_id}
        yield ToolCall("modify_user_address", me | self._address()), ToolCall("get_user_details", me)
        for id in self._few(user.orders):
            if possible := self._possible(user, self.db.orders[id]):
                yield self.dice.choice(possible), ToolCall("get_order_details", {"order_id": id})

    def _possible(self, user: Any, order: Any) -> list[ToolCall]:
        here, paid = {"order_id": order.order_id}, order.payment_history[0].payment_method_id
        if order.status == "pending":
            reason = {"reason": self.dice.choice(["no longer needed", "ordered by mistake"])}
            other = [ToolCall("modify_pending_order_payment", here | {"payment_method_id": _card(user)})]
            return [
                ToolCall("cancel_pending_order", here | reason),
                *[ToolCall("modify_pending_order_address", here | self._address())] * 4,
                *self._other_item("modify_pending_order_items", user, order),
                *(other if paid != _card(user) else []),
            ]
        if order.status == "delivered":
            back = here | {"item_ids": [order.items[0].item_id], "payment_method_id": paid}
            exchange = self._other_item("exchange_delivered_order_items", user, order)
            return [ToolCall("return_delivered_order_items", back), *exchange]
        return []

    def _other_item(self, tool: str, user: Any, order: Any) -> list[ToolCall]:
        item = order.items[0]
        variants = self.db.products[item.product_id].variants.values()
        others = [v.item_id for v in variants if v.available and v.item_id != item.item_id]
        arguments = {"order_id": order.order_id, "item_ids": [item.item_id], "payment_method_id": _card(user)}
        return [ToolCall(tool, arguments | {"new_item_ids": [self.dice.choice(others)]})] if others else []

    def _address(self) -> dict[str, str]:
        street = f"{self.dice.randrange(1, 999)} Elm Street"
        place = {"city": "Austin", "state": "TX", "country": "USA", "zip": "78701"}
        return {"address1": street, "address2": ""} | place


class _Airline(_Customers):
    def read(self) -> ToolCall:
        user = self.dice.choice(self.users)
        flight = self.dice.choice(list(self.db.flights.values())[:4])
        route = {"origin": flight.origin, "destination": flight.destination, "date": self.dice.choice(DATES[:2])}
        moving = [
            ToolCall("get_user_details", {"user_id": user.user_id}),
            *[ToolCall("get_reservation_details", {"reservation_id": id}) for id in self._few(user.reservations)],
        ]
        return self.dice.choice(
            [
                *moving * 3,
                ToolCall("get_flight_status", {"flight_number": flight.flight_number, "date": route["date"]}),
                ToolCall("search_direct_flight", route),
                ToolCall("list_all_airports", {}),
                self._calculate(),
            ]
        )

    def pairs(self, user: Any) -> Iterator[tuple[ToolCall, ToolCall]]:
        me = {"user_id": user.user_id}
        yield (
            ToolCall("send_certificate", me | {"amount": self.dice.randrange(50, 500)}),
            ToolCall("get_user_details", me),
        )
        if not self.alone:  # the three free numbers are everybody's
            yield self._booking(user)
        for id in self._few(user.reservations):
            yield self._change(user, id), ToolCall("get_reservation_details", {"reservation_id": id})

    def _change(self, user: Any, id: str) -> ToolCall:
        booked = self.db.reservations[id]
        people = [
            {**person.model_dump(), "dob": f"1980-01-{self.dice.randrange(10, 28)}"} for person in booked.passengers
        ]
        here, paying = {"reservation_id": id}, {"payment_id": _card(user)}
        more = {"total_baggages": self.dice.randrange(5, 50), "nonfree_baggages": self.dice.randrange(5)}
        same = [{"flight_number": flight.flight_number, "date": flight.date} for flight in booked.flights]
        return self.dice.choice(
            [
                ToolCall("cancel_reservation", here),
                ToolCall("update_reservation_passengers", here | {"passengers": people}),
                ToolCall("update_reservation_baggages", here | more | paying),
                ToolCall("update_reservation_flights", here | {"cabin": self._cabin(booked), "flights": same} | paying),
            ]
        )

    def _cabin(self, booked: Any) -> str:
        """A cabin that has room on all flights, else the one that is booked."""
        for cabin in self.dice.sample(["economy", "business"], 2):
            days = [self.db.flights[flight.flight_number].dates[flight.date] for flight in booked.flights]
            if all(day.status == "available" and day.available_seats[cabin] >= 6 for day in days):
                return cabin
        return booked.cabin

    def _booking(self, user: Any) -> tuple[ToolCall, ToolCall]:
        flight, day = self._with_room()
        price = flight.dates[day].prices["economy"]
        arguments = {
            "user_id": user.user_id,
            "origin": flight.origin,
            "destination": flight.destination,
            "flight_type": "one_way",
            "cabin": "economy",
            "flights": [{"flight_number": flight.flight_number, "date": day}],
            "passengers": [_name(user) | {"dob": user.dob}],
            "payment_methods": [{"payment_id": _card(user), "amount": price}],
            "total_baggages": 0,
            "nonfree_baggages": 0,
            "insurance": "no",
        }
        route = {"origin": flight.origin, "destination": flight.destination, "date": day}
        return ToolCall("book_reservation", arguments), ToolCall("search_direct_flight", route)

    def _with_room(self) -> tuple[Any, str]:
        """One of the flights that all sessions search for, where it has seats on one of those days."""
        flights = [(flight, day) for flight in list(self.db.flights.values())[:4] for day in DATES]
        free = [(f, d) for f, d in flights if d in f.dates and f.dates[d].status == "available"]
        return next((f, d) for f, d in free if f.dates[d].available_seats["economy"] > 0)
