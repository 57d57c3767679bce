"""RuleNames of people, by locale: natural, varied and free of any order that could mark a row."""

from __future__ import annotations

from collections.abc import Mapping

GIVEN: Mapping[str, tuple[str, ...]] = {
    "world": tuple(
        """
Abel Adela Aiko Aino Alban Alina Amira Ana Anders Anselm Aron Arvid Astrid Bao Basil Beatrix
Beatriz Bela Berit Bilal Bodo Bruna Callum Carina Cato Celia Chen Chiara Clemens Cosima Dagny Dana
Daniel Dario Delia Edda Elena Elio Eloise Elsa Emeka Emre Enzo Esra Eva Fabio Farah Faye Felix Fen
Fiona Flora Gesa Gian Grace Greta Hana Hanno Haruto Hedda Henrik Hugo Ida Idris Ilka Ilya Imani
Ines Iris Ivan Iven Ivo Jana Jarle Jia Jonas Jonna Joris Jun Juno Kaito Kalea Kamal Keno Kira Lan
Lars Lasse Leila Lena Leonie Levi Liam Lin Livia Lorcan Lotte Luca Lucia Maja Malin Marco Marek
Maren Mats Mei Mila Mina Mira Moritz Nadia Nadir Nele Nika Nils Noor Nora Odile Olaf Olga Omar
Orla Otis Paola Paolo Pavel Pia Priya Qiang Quentin Rahul Rania Ravi Remy Rike Romy Rosa Runa Sami
Samir Sara Selma Silas Sina Sofia Sofie Sunniva Sven Talia Tamar Tao Tarek Tariq Thea Theo Tilda
Tomas Tuva Ulf Uma Vera Viggo Vito Wanda Wei Xenia Xia Yan Yara Yusuf Zelda Zhen Zoe Zora
""".split()
    ),
}
"""Locale -> given names."""

FAMILY: Mapping[str, tuple[str, ...]] = {
    "world": tuple(
        """
Abendroth Achterberg Aldersey Almeida Almqvist Amsel Ashgrove Balfrey Baltus Bauer Benning Berg
Bergholt Bexley Birkmoor Brandvik Brisco Calderon Caspar Castwell Chang Chen Conti Corvane Corvin
Costa Dahlberg Dalgaard Delacrest Demir Deng Diaz Dorn Dunmore Eastmark Eklund Elvin Falkner Fang
Farnleigh Ferrow Fink Fischer Fjellmo Gallo Gao Garcia Garrick Glenhall Grau Greyford Guo Haddad
Hallam Halvary Han Harcombe Hartwig He Heidmark Holloway Hook Hu Isler Ivanova Ivarsen Jessen
Jiang Jorvik Kaplan Kato Kellner Kestrel Khan Kim Kingsmoor Kowalski Kranz Lang Larkfield Larsen
Lee Li Lindow Lindqvist Liu Loewen Lopez Lorne Lu Ma Marchetti Marlow Merrow Meyer Mohr Moorland
Mori Nadar Nasser Nilsson Nordahl Norling Novak Oakhurst Okafor Okonda Oliveira Olsson Ostermann
Pardo Park Pellworth Peng Petri Petrov Qian Quayle Quist Rao Rasmus Ravenel Reuter Rossi Rosslyn
Saltmarsh Sandvik Sato Selwick Shen Silva Singh Sommer Stave Stroud Sun Tamsin Tanaka Tang
Thornbury Thorne Tideman Ulrich Umberto Valmont Vance Varga Vidal Wang Wexford Whitlock
Winterbourne Wolter Wu Xie Xu Yamada Yang Yarrow Ye Yilmaz Yu Zander Zhang Zhao Zheng Zhou Zhu
""".split()
    ),
}
"""Locale -> family names."""
