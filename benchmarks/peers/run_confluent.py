"""confluent-kafka: a row as JSON into librdkafka's buffer; nobody listens, as with our case without one."""

import json
import sys
import time
from importlib.metadata import version

from calls import FEATURES, WARM_UPS, percentiles, timed
from confluent_kafka import Producer

calls, pause = int(sys.argv[1]), float(sys.argv[2])
producer = Producer(
    {
        "bootstrap.servers": "127.0.0.1:9",
        "queue.buffering.max.messages": calls + WARM_UPS + 1,
        "queue.buffering.max.kbytes": 2**21 - 1,
        "linger.ms": 50,
        "log_level": 0,
    }
)
row = {f"x{place}": place / 7 for place in range(FEATURES)}


def produce() -> None:
    value = {"features": row, "outputs": 0.5, "time": round(time.time(), 3)}
    producer.produce("rows", json.dumps(value).encode())


entry = {
    "who": f"confluent-kafka {version('confluent-kafka')}",
    "does": "json.dumps and Producer.produce, a dict",
    "rows": 1,
    **percentiles(timed(produce, calls, pause), 1),
}
producer.purge()
producer.flush(1.0)
print(json.dumps([entry]))
